// GPUs as the launcher sees them: the real dtrun, and a made-up management library of the driver.
#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/fake_gpus.h"
#include "tests/support/process.h"

namespace dtrun::gpu_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

Ended with(const FakeGpus& gpus, const Words& words, Words variables = {}) {
  Words argv{kDtrun};
  argv.insert(argv.end(), words.begin(), words.end());
  variables.emplace_back("OMP_NUM_THREADS=1");
  for (const std::string& entry : gpus.environment()) variables.push_back(entry);
  return Process(argv, variables).end();
}

const Words kOnEachGpu{"--nproc_per_node", "gpu", "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"};

}  // namespace

TEST_CASE("a worker is started for each GPU, and which they are is said once") {
  const FakeGpus gpus(alike(3));
  const Ended ended = with(gpus, kOnEachGpu);
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  for (const char* rank : {"rank 0 of 3", "rank 1 of 3", "rank 2 of 3"})
    CHECK_MESSAGE(ended.out.find(rank) != std::string::npos, ended.out);
  CHECK_MESSAGE(
      ended.err.find("dtrun: GPUs: 0-2 (NVIDIA H200, 140 GiB each), one per worker\n") != std::string::npos,
      ended.err);
}

TEST_CASE("CUDA_VISIBLE_DEVICES counts") {
  const FakeGpus gpus(alike(4));
  const Ended ended = with(gpus, kOnEachGpu, {"CUDA_VISIBLE_DEVICES=3,1,7"});
  CHECK(ended.out.find("of 2") != std::string::npos);
  CHECK_MESSAGE(ended.err.find("GPUs: 3, 1 (NVIDIA H200") != std::string::npos, ended.err);
  const Ended none = with(gpus, kOnEachGpu, {"CUDA_VISIBLE_DEVICES="});
  CHECK(none.exit_code == 64);
  CHECK_MESSAGE(
      none.err.find("--nproc_per_node=gpu: no GPU here (CUDA_VISIBLE_DEVICES= shows none of the 4 here); use "
                    "cpu, auto or a number\n") != std::string::npos,
      none.err);
}

TEST_CASE("a driver that does not start is named") {
  const FakeGpus gpus(R"({"init": 18})");
  const Ended ended = with(gpus, kOnEachGpu);
  CHECK(ended.exit_code == 64);
  CHECK_MESSAGE(
      ended.err.find("no GPU here (the NVIDIA driver: Driver/library version mismatch)") != std::string::npos,
      ended.err);
}

TEST_CASE("dtrun gpus shows what is there, and what programs see of it") {
  const FakeGpus gpus(alike(2, R"(, "used": 1073741824)"));
  const Ended table = with(gpus, {"gpus"}, {"CUDA_VISIBLE_DEVICES=1"});
  CHECK(table.exit_code == 0);
  CHECK(table.out ==
        "GPU  CUDA  name         memory   in use   address       NUMA node\n"
        "0    -     NVIDIA H200  140 GiB  1.0 GiB  0000:10:00.0  -\n"
        "1    0     NVIDIA H200  140 GiB  1.0 GiB  0000:20:00.0  -\n"
        "driver 580.65.06, for CUDA 13.0 and older\n");
  const auto json = nlohmann::json::parse(with(gpus, {"gpus", "--json"}).out);
  CHECK(json["gpus"].size() == 2);
  const FakeGpus nothing(R"({"gpus": []})");
  CHECK(with(nothing, {"gpus"}).out ==
        "driver 580.65.06, for CUDA 13.0 and older\n"
        "no GPU for programs that start here: the NVIDIA driver shows none\n");
}

TEST_CASE("dtrun gpus --on_request looks again for each line that it is given, and ends with the last") {
  FakeGpus gpus(alike(1));
  const Folder folder;
  const std::string second = folder / "second";
  Process reader({"/bin/sh", "-c",
                  "{ echo; while [ ! -e \"$0\" ]; do sleep 0.02; done; echo; } | \"$1\" gpus --on_request",
                  second, kDtrun},
                 gpus.environment());
  REQUIRE(reader.wait_for_out("\n"));
  gpus.tell(alike(2));
  std::ofstream(second).close();
  CHECK(reader.wait() == 0);
  std::istringstream lines(reader.out());
  std::vector<std::size_t> seen;
  for (std::string line; std::getline(lines, line);)
    seen.push_back(nlohmann::json::parse(line)["gpus"].size());
  CHECK(seen == std::vector<std::size_t>{1, 2});
}

// Runs `script` on each of the GPUs; a worker that does "wait_for NAME" goes on once the test has made that
// file.
class Job {
 public:
  Job(const FakeGpus& gpus, const Words& options, const std::string& script)
      : process_(argv(options, script), variables(gpus)) {}
  Process& process() { return process_; }
  void let(const std::string& name) { std::ofstream(folder_ / name).close(); }

 private:
  Words argv(const Words& options, const std::string& script) const {
    Words words{kDtrun, "--nproc_per_node", "gpu"};
    words.insert(words.end(), options.begin(), options.end());
    const std::string wait =
        "wait_for() { while [ ! -e " + folder_.path().string() + "/$1 ]; do sleep 0.02; done; }; ";
    words.insert(words.end(), {"--", "/bin/sh", "-c", wait + script});
    return words;
  }
  static Words variables(const FakeGpus& gpus) {
    Words all = gpus.environment();
    all.emplace_back("OMP_NUM_THREADS=1");
    return all;
  }

  Folder folder_;
  Process process_;
};

// A program gets two of four dollar signs.
constexpr char kFailOnce[] =
    "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { echo again; exit 0; }; echo pid $$$$ up; wait_for failure; "
    "exit "
    "1";

// The pid of a worker that printed "pid N up".
std::string pid_in(const std::string& out) {
  const std::size_t at = out.find("pid ") + 4;
  return out.substr(at, out.find(' ', at) - at);
}

TEST_CASE("a worker that takes a dead one's place starts once the GPU has let go of it") {
  FakeGpus gpus(alike(1));
  Job job(gpus, {"--max_restarts", "1"}, kFailOnce);
  REQUIRE(job.process().wait_for_out(" up"));
  gpus.tell(alike(1, R"(, "processes": [)" + pid_in(job.process().out()) + "]"));
  job.let("failure");
  const auto looks = gpus.looks();
  REQUIRE(eventually([&] { return gpus.looks() >= looks + 4; }));  // it is looked at again and again
  CHECK(job.process().out().find("again") == std::string::npos);
  gpus.tell(alike(1));
  CHECK(job.process().wait_for_out("again"));
  CHECK(job.process().wait() == 0);
  CHECK_MESSAGE(job.process().err().find("still has memory") == std::string::npos, job.process().err());
}

TEST_CASE("a GPU that does not let go is named, and waited for no longer than 5 s") {
  FakeGpus gpus(alike(1));
  Job job(gpus, {"--max_restarts", "1"}, kFailOnce);
  REQUIRE(job.process().wait_for_out(" up"));
  const std::string pid = pid_in(job.process().out());
  gpus.tell(alike(1, R"(, "processes": [)" + pid + "]"));
  job.let("failure");
  CHECK(job.process().wait() == 0);
  CHECK(job.process().out().find("again") != std::string::npos);
  CHECK_MESSAGE(job.process().err().find("GPU 0 (0000:10:00.0) still has memory of process " + pid +
                                         ", which ended 5 s ago") != std::string::npos,
                job.process().err());
}

TEST_CASE("a job that is told to end does not wait for a GPU") {
  FakeGpus gpus(alike(1));
  Job job(gpus, {"--max_restarts", "1"}, kFailOnce);
  REQUIRE(job.process().wait_for_out(" up"));
  gpus.tell(alike(1, R"(, "processes": [)" + pid_in(job.process().out()) + "]"));
  job.let("failure");
  const auto looks = gpus.looks();
  REQUIRE(eventually([&] { return gpus.looks() >= looks + 4; }));
  job.process().signal(SIGTERM);
  CHECK(job.process().wait(std::chrono::seconds(4)) == 143);
}

TEST_CASE("the report says what the driver knows of a failed worker's GPU") {
  FakeGpus gpus(alike(2, R"(, "ecc": 1)"));
  Job job(gpus, {}, "echo up; [ $RANK = 1 ] && wait_for failure && exit 1; sleep 60");
  REQUIRE(job.process().wait_for_out("up"));
  REQUIRE(eventually([&] { return gpus.looks() >= 2; }));  // before the workers, and as the job began
  gpus.tell(alike(2, R"(, "ecc": 4, "lost": true)"));
  job.let("failure");
  CHECK(job.process().wait() == 1);
  const std::string told = job.process().err();
  CHECK_MESSAGE(
      told.find("\n  GPU 1 (0000:20:00.0): it is lost, says the driver; drain this node and power-cycle it\n"
                "  GPU 1 (0000:20:00.0): 3 memory errors that ECC could not correct") != std::string::npos,
      told);
  CHECK(told.find("GPU 0 (") == std::string::npos);
}

TEST_CASE("a driver that stops answering keeps nobody from starting again") {
  FakeGpus gpus(alike(1));
  Job job(gpus, {"--max_restarts", "1"}, kFailOnce);
  REQUIRE(job.process().wait_for_out(" up"));
  REQUIRE(eventually([&] { return gpus.looks() >= 2; }));
  for (pid_t observer : children_of(job.process().pid(), "dtrun")) kill(observer, SIGSTOP);
  job.let("failure");
  CHECK(job.process().wait() == 0);
  CHECK(job.process().out().find("again") != std::string::npos);
}

TEST_CASE(
    "the status has the use of each worker's GPU as the driver tells it, and what it does not is absent") {
  FakeGpus gpus(alike(2, R"(, "busy": 87, "used": 1073741824)"));
  const Folder registry;
  const Words variables{"XDG_RUNTIME_DIR=" + registry.path().string()};
  Words environment = gpus.environment();
  environment.push_back(variables[0]);
  Process job({kDtrun, "--nproc_per_node", "gpu", "--rdzv_id", "gpus", "--", "/bin/sh", "-c",
               "echo up; exec sleep 60"},
              environment);
  REQUIRE(job.wait_for_out("up"));
  REQUIRE(with(gpus, {"status", "gpus", "--until", "running"}, variables).exit_code == 0);
  Process watch({kDtrun, "status", "gpus", "--watch", "--json"}, environment);
  const auto of_second = [&]() -> nlohmann::json {
    const std::string out = watch.out().substr(0, watch.out().rfind('\n') + 1);  // whole lines
    if (out.empty()) return {};
    const auto run = nlohmann::json::parse(out.substr(out.rfind('\n', out.size() - 2) + 1));
    const nlohmann::json& workers = run["nodes"][0]["workers"];
    return workers.size() == 2 && workers[1].contains("gpu") ? workers[1]["gpu"] : nlohmann::json();
  };
  REQUIRE(eventually([&] { return of_second().is_object(); }));
  const nlohmann::json first = of_second();
  CHECK(first["number"] == 1);
  CHECK(first["utilization"] == 0.87);
  CHECK(first["memory_used"] == 1073741824);
  CHECK(first["memory_total"] == 150754820096);
  CHECK_FALSE(first.contains("temperature"));
  CHECK_FALSE(first.contains("throttled"));
  gpus.tell(alike(2, R"(, "busy": 12, "celsius": 91, "throttle": 32)"));
  CHECK(eventually([&] { return of_second().contains("throttled"); }));
  CHECK(of_second()["throttled"] == nlohmann::json{"heat"});
  CHECK(of_second()["temperature"] == 91);
  CHECK(of_second()["utilization"] == 0.12);
  kill(job.pid(), SIGTERM);
  job.wait();
}

// A build without CUDA, or a driver that is too old for it: no build can train here.
TEST_CASE("a device that cannot be had is refused before any worker starts, and auto takes the CPU") {
  const FakeGpus gpus(
      R"({"cuda": 1000, "driver": "1.0", "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-1"}]})");
  const std::string config = DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json";
  const Ended refused = with(gpus, {"--nproc_per_node", "1", config, "device=cuda"});
  CHECK(refused.exit_code == 78);
  CHECK_MESSAGE(refused.err.find("/device is \"cuda\", but ") != std::string::npos, refused.err);
  const Ended planned = with(gpus, {"--dry_run", config});
  CHECK(planned.exit_code == 0);
  const auto plan = nlohmann::json::parse(planned.out);
  CHECK(plan["device"].get<std::string>().starts_with("cpu, "));
  CHECK(plan["gpus"].is_null());
}

}  // namespace dtrun::gpu_test
