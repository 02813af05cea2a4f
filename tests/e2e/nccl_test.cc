// Failures between GPUs, end to end: workers that die in the middle of an exchange, links that report errors
// on some ranks or on none, aborts that never return. The job goes on, and no byte changes.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "tests/e2e/gpu_lab.h"

namespace dtrun::nccl_test {

using namespace dtrun::test;

namespace {

Model small_model() { return models()[2]; }  // an mlp

constexpr int kSteps = 8;

// A job with this fault, which one process has.
Ended with_fault(const Lab& lab, const std::string& name, const std::string& fault) {
  return lab.run(lab.job(small_model(), 3, name, kSteps, {}, {"--max_restarts", "2"}),
                 {"DTRUN_TEST_NCCL_FAULT=" + fault,
                  "DTRUN_TEST_NCCL_FAULT_ONCE=" + lab.output(name + ".once").string()});
}

}  // namespace

TEST_CASE("a worker that dies in the middle of an exchange, whoever notices, costs no byte") {
  const Lab lab;
  REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps)).exit_code == 0);
  // The survivors: rank 1 learns of a lost peer, ranks 0 and 2 do not.
  for (const char* const rank : {"0", "1"}) {
    CAPTURE(rank);
    const std::string name = std::string("died ") + rank;
    const Stopwatch watch;
    const Ended ended = with_fault(lab, name, std::string("dies:") + rank + "@7");
    // Not by a deadline: the agents tell the survivors.
    CHECK(watch.fair() < std::chrono::seconds(40));
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(std::filesystem::exists(lab.output(name + ".once")));
    CHECK_MESSAGE(says(ended, "SIGKILL"), ended.err);
    CHECK(lab.model(name) == lab.model("calm"));
  }
}

TEST_CASE("links that fail without a death are made again") {
  const Lab lab;
  REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps)).exit_code == 0);
  // ncclRemoteError; ncclUnhandledCudaError, which is a fault of the GPU.
  for (const char* const fault : {"async-error:2@7:6", "async-error:1@7:1", "init-fails:1:6"}) {
    CAPTURE(fault);
    const std::string name = std::string("failed ") + fault;
    const Ended ended = with_fault(lab, name, fault);
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(std::filesystem::exists(lab.output(name + ".once")));
    CHECK(lab.model(name) == lab.model("calm"));
  }
}

TEST_CASE("a variable with which a lost peer could not be given up is refused") {
  const Lab lab;
  const Ended refused = lab.run(lab.job(small_model(), 2, "blocking", kSteps), {"NCCL_COMM_BLOCKING=1"});
  CHECK(refused.exit_code == 78);
  CHECK_MESSAGE(says(refused, "NCCL_COMM_BLOCKING=1 is set"), refused.err);
}

TEST_CASE("two hosts with two GPUs each train to the bytes of one, in two levels") {
  const Lab lab;
  const Words wide{"model.hidden_sizes=[512,64]"};  // 300 kB of gradient in a bucket
  REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps, wide)).exit_code == 0);
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto node = [&](const std::string& host) {
    Words argv = lab.job(small_model(), 2, "pair", kSteps, wide,
                         {"--nnodes", "2", "--rdzv_endpoint", endpoint, "--rdzv_id", "pair"});
    std::erase(argv, "--standalone");
    return std::make_unique<Process>(argv, lab.variables({"NCCL_HOSTID=" + host}));
  };
  const auto first = node("one"), second = node("two");
  const Ended a = first->end(), b = second->end();
  CHECK_MESSAGE(a.exit_code == 0, a.err);
  CHECK_MESSAGE(b.exit_code == 0, b.err);
  CHECK(lab.model("pair") == lab.model("calm"));
}

TEST_SUITE("long") {
  TEST_CASE(
      "a worker that dies between exchange and update, or between two ranks' updates, leaves whole steps") {
    const Lab lab;
    REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps)).exit_code == 0);
    // The last two: before there are links, and while the others wait for it in the middle of a step.
    for (const char* const stop : {"exchanged:count=4", "updated:count=4", "bucket_sent:count=5",
                                   "choosing_start:count=1", "microbatch:count=9"}) {
      for (const char* const rank : {"0", "2"}) {
        CAPTURE(stop);
        CAPTURE(rank);
        std::string name = std::string(stop) + " of " + rank;
        std::ranges::replace(name, ':', ' ');  // a stop's fields have it between them
        const std::string once = lab.output(name + ".once").string();
        const Ended ended =
            lab.run(lab.job(small_model(), 3, name, kSteps, {}, {"--max_restarts", "2"}),
                    {"DTRUN_TEST_STOP=" + std::string(stop) + ":rank=" + rank + ":signal=9:once=" + once});
        CHECK_MESSAGE(ended.exit_code == 0, ended.err);
        CHECK(std::filesystem::exists(once));
        CHECK(lab.model(name) == lab.model("calm"));
      }
    }
  }

  TEST_CASE("a worker whose NCCL never gives up is replaced") {
    const Lab lab;
    REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps)).exit_code == 0);
    const Ended ended = with_fault(lab, "hung", "async-error:0@7:6,abort-hangs:0");
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK_MESSAGE(says(ended, "NCCL did not give up its connections"), ended.err);
    CHECK(lab.model("hung") == lab.model("calm"));
  }

  TEST_CASE(
      "a context that is lost with its peer's ends the worker with the GPU's exit code, and another begins") {
    const Lab lab;
    REQUIRE(lab.run(lab.job(small_model(), 1, "calm", kSteps)).exit_code == 0);
    const Ended ended = with_fault(lab, "poisoned", "breaks-device:1@7");
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK_MESSAGE(says(ended, "the GPU failed while "), ended.err);
    CHECK(lab.model("poisoned") == lab.model("calm"));
  }
}

}  // namespace dtrun::nccl_test
