// Nodes whose processors give other bits, in one job: one of them is told to leave out fused multiply-add.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/training.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace dtrun::mixed_processors_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

const Words kPlain = {"DTRUN_CPU=baseline"};

class Job {
 public:
  Job(std::string nnodes, std::string steps) : nnodes_(std::move(nnodes)), steps_(std::move(steps)) {
    std::ofstream(config_) << R"({"model": {"type": "convnet"},
      "data": {"type": "synthetic", "samples": 600, "shape": [1, 16, 16]},
      "train": {"global_batch_size": 16, "eval_steps": 0, "save_steps": 0, "logging_steps": 50},
      "output_dir": "unused"})";
  }
  // A node of one worker. The first to start hosts the coordinator.
  std::unique_ptr<Process> start(const Words& environment, const Words& overrides = {}) const {
    Words words{kDtrun,
                "--nnodes",
                nnodes_,
                "--rdzv_endpoint",
                endpoint_,
                "--lanes",
                "1",
                "--rdzv_conf",
                "last_call_timeout=1,join_timeout=60",
                config_.string(),
                "output_dir=" + output().string(),
                "train.max_steps=" + steps_};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return std::make_unique<Process>(words, environment);
  }
  const std::filesystem::path& config() const { return config_; }
  std::filesystem::path output() const { return folder_.path() / "out"; }

 private:
  const Folder folder_;
  const std::filesystem::path config_ = folder_.path() / "c.json";
  const std::string nnodes_, steps_;
  const std::string endpoint_ = "127.0.0.1:" + std::to_string(free_port());
};

std::string fingerprint(const Job& job, const Words& environment) {
  return run({"/bin/sh", "-c", "exec \"$1\" fingerprint <\"$2\"", "sh", DTRUN_BIN_DIR "/dtrun-worker",
              job.config()},
             environment)
      .out;
}

// One that has no more than the baseline cannot be told to leave anything out. The fingerprint is not asked:
// it may be what is wrong.
bool has_more() { return contains(read_text("/proc/cpuinfo"), " fma "); }

}  // namespace

TEST_CASE("a fingerprint of fp32 names nothing of a processor with fused multiply-add") {
  for (const char* train : {"{}", R"({"micro_batch_size": 2})"})
    for (const char* model : {R"({"type": "convnet"})", R"({"type": "mlp", "hidden_sizes": [64]})"}) {
      const Job job("1", "1");
      std::ofstream(job.config()) << R"({"model": )" << model << R"(, "train": )" << train
                                  << R"(, "output_dir": "unused",
        "data": {"type": "synthetic", "samples": 600, "shape": [1, 28, 28]}})";
      CHECK(fingerprint(job, {}) == "cpu, fp32 1\n");
      CHECK(fingerprint(job, {"DTRUN_CPU=avx2"}) == "cpu, fp32 1\n");
    }
}

TEST_SUITE_BEGIN("instruction_sets");

TEST_CASE("a node whose processor gives other bits is refused, and both are named") {
  if (!has_more()) return skip("the processor has no fused multiply-add");
  const Job job("2", "2");
  const auto first = job.start({});
  REQUIRE(first->wait_for_err("joined 1 of 2"));
  const auto second = job.start(kPlain);
  CHECK(second->wait() == 78);
  CHECK_MESSAGE(contains(second->err(), "cpu, without fused multiply-add, but "), second->err());
  CHECK(contains(second->err(), "first, computes on cpu, "));
  CHECK(contains(second->err(), ": no worker computes without it; leave "));
  CHECK(first->wait_for_err(" was refused: it would compute on cpu, "));
  first->signal(SIGINT);
  first->wait();
  CHECK_FALSE(std::filesystem::exists(job.output() / "model.safetensors"));
}

TEST_CASE("such a node that comes later does not disturb the job") {
  if (!has_more()) return skip("the processor has no fused multiply-add");
  const Job job("1:2", "100000000");
  const auto first = job.start({});
  REQUIRE(trains(job.output(), 1));
  const auto second = job.start(kPlain);
  CHECK(second->wait() == 78);
  CHECK(first->wait_for_err(" was refused: it would compute on cpu, "));
  CHECK(trains(job.output(), steps_done(job.output()) + 1));
  first->signal(SIGTERM);
  CHECK_MESSAGE(first->wait() == 128 + SIGTERM, first->err());
  CHECK(first->err().find("going on") == std::string::npos);
}

TEST_CASE("a processor without fused multiply-add is refused by name, also where kinds may be mixed") {
  if (!has_more()) return skip("the processor has no fused multiply-add");
  const Job job("1", "2");
  const auto refused = job.start(kPlain, {"train.allow_mixed_devices=true"});
  CHECK(refused->wait() == 78);
  CHECK_MESSAGE(contains(refused->err(), "this processor has no fused multiply-add (FMA)"), refused->err());
}

}  // namespace dtrun::mixed_processors_test
