// Four nodes train, and one of them is disturbed: a process on its cores, then a quota. The status names the
// right one, and the part that takes it longer; the model has the bytes of a run without disturbance.
#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/ids.h"
#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::straggler_test {

using namespace dtrun::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kNodes = 4, kDisturbed = 3;
// Under the load of whatever else a machine does, all takes its time.
const auto kPatience = std::chrono::seconds(60);
// So many take more of a core than another program beside a node may take of its.
constexpr int kBurners = 3;

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

// A control group for each node, which all have an equal part of the processor: what runs beside a worker in
// its group takes that worker's time alone. Of whichever hierarchy has the cpu controller.
class Groups {
 public:
  Groups() {
    const fs::path all = "/sys/fs/cgroup";
    const std::string name = "dtrun-test-" + dtrun::random_id();
    std::error_code error;
    unified_ = !fs::create_directory(all / "cpu" / name, error);
    top_ = unified_ ? all / name : all / "cpu" / name;
    if (unified_) {
      write(all / "cgroup.subtree_control", "+cpu");
      fs::create_directory(top_, error);
      write(top_ / "cgroup.subtree_control", "+cpu");
    }
    for (int node = 0; node < kNodes; ++node) fs::create_directory(of(node), error);
    write(top_ / (unified_ ? "cpu.weight" : "cpu.shares"),
          unified_ ? "10000" : "262144");  // a busy machine's others wait
  }
  ~Groups() {
    std::error_code error;
    for (int node = 0; node < kNodes; ++node)
      CHECK(eventually([&] { return fs::remove(of(node), error) || !fs::exists(of(node)); }));
    fs::remove(top_, error);
  }
  Groups(const Groups&) = delete;

  bool there() const { return fs::exists(of(0) / (unified_ ? "cpu.max" : "cpu.cfs_quota_us")); }
  // A command that joins the node's group and becomes `argv`.
  std::vector<std::string> in(int node, const std::vector<std::string>& argv) const {
    return joined(
        {"/bin/sh", "-c", "echo $$ >" + (of(node) / "cgroup.procs").string() + " && exec \"$@\"", "sh"},
        argv);
  }
  // Microseconds of each 20,000; none: no limit.
  void limit(int node, const std::string& quota) const {
    if (unified_) return write(of(node) / "cpu.max", (quota.empty() ? "max" : quota) + " 20000");
    write(of(node) / "cpu.cfs_period_us", "20000");
    write(of(node) / "cpu.cfs_quota_us", quota.empty() ? "-1" : quota);
  }

 private:
  fs::path of(int node) const { return top_ / Hosts::name(node); }

  fs::path top_;
  bool unified_ = false;
};

// Two nodes share each of two cores. So many microbatches that a step is not all exchange.
class Job {
 public:
  explicit Job(const Groups& all) : groups(all) {
    for (int node = 0; node < kNodes; ++node) agents_.push_back(start(node));
    REQUIRE(trains(output(), 20));
  }

  fs::path output() const { return hosts.seen_from_here(0, "out"); }
  json status() const {
    const auto asked = run(hosts.on(0, {kDtrun, "status", "four", "--rdzv_endpoint", endpoint(), "--json"}));
    const json runs = json::parse(asked.out, nullptr, false);
    return runs.is_array() && !runs.empty() ? runs[0] : json::object();
  }
  json verdict() const { return status().value("verdict", json()); }
  bool names(int rank) const {
    const json found = verdict();
    return found.is_object() && found["rank"] == rank && found["cause"] == "math";
  }
  std::vector<json> events() const {
    std::vector<json> found;
    std::istringstream lines(read_if_there(hosts.seen_from_here(0, "logs/four/events.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (json event = json::parse(line); event["event"] == "straggler") found.push_back(std::move(event));
    return found;
  }
  static std::vector<std::string> config(int steps) {
    return {"train.max_steps=" + std::to_string(steps), "train.lr_scheduler_type=constant",
            "train.save_steps=50", "train.global_batch_size=512", "train.micro_batch_size=16"};
  }

  const Groups& groups;
  const Hosts hosts{kNodes};

 private:
  static std::string endpoint() { return Hosts::address(0) + ":29400"; }
  std::unique_ptr<Process> start(int node) const {
    const std::vector<std::string> options{"--rdzv_endpoint",  endpoint(),
                                           "--rdzv_id",        "four",
                                           "--nnodes",         std::to_string(kNodes),
                                           "--node_rank",      std::to_string(node),
                                           "--nproc_per_node", "1",
                                           "--lanes",          "1",
                                           "--log_dir",        hosts.directory() / "logs"};
    const auto core = std::to_string(node % 2);
    return std::make_unique<Process>(hosts.on(
        node, groups.in(node, joined({"taskset", "-c", core},
                                     training(options, hosts.directory() / "out", config(1'000'000))))));
  }

  std::vector<std::unique_ptr<Process>> agents_;
};

void expect_named(const Job& job) {
  const Stopwatch watch;
  CHECK_MESSAGE(eventually([&] { return job.names(kDisturbed); }, kPatience), job.verdict().dump());
  const std::chrono::duration<double> took = watch.wall();
  MESSAGE("after " << took.count() << " s: " << job.verdict().dump());
}

void expect_nobody(const Job& job) {
  CHECK_MESSAGE(eventually([&] { return job.verdict().is_null(); }, kPatience), job.verdict().dump());
}

// Undone with its end.
struct Undo {
  std::function<void()> undo;
  ~Undo() { undo(); }
};

void burn(const Job& job) {
  std::vector<std::unique_ptr<Process>> burners;
  for (int i = 0; i < kBurners; ++i)
    burners.push_back(std::make_unique<Process>(job.groups.in(
        kDisturbed, {"taskset", "-c", std::to_string(kDisturbed % 2), "sh", "-c", "while :; do :; done"})));
  expect_named(job);
}

void throttle(const Job& job) {
  const Undo no_limit{[&] { job.groups.limit(kDisturbed, ""); }};
  job.groups.limit(kDisturbed, "3000");
  expect_named(job);
}

// Once nothing is planted any more nobody is named, and nobody else was before.
void expect_end(const Job& job) {
  expect_nobody(job);
  const json worker = job.status()["nodes"][2]["workers"][0];
  CHECK_MESSAGE(worker["rank"] == 2, worker.dump());
  CHECK_MESSAGE(worker["times"]["steps"] > 20, worker.dump());
  CHECK_MESSAGE(worker["usage"]["cpu"] > 0, worker.dump());
  const std::vector<json> events = job.events();
  REQUIRE(events.size() >= 4);
  CHECK(events.front()["cause"] == "math");
  for (const json& event : events)
    CHECK_MESSAGE((event["rank"] == kDisturbed || event["rank"].is_null()), event.dump());
  CHECK(events.back()["text"] == "");
}

}  // namespace

TEST_CASE("who slows the others is named, and why" * doctest::test_suite("cgroup")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  if (!Groups().there()) return skip("no control group can be made here");
  if (std::thread::hardware_concurrency() < 2) return skip("needs two cores");
  const Groups groups;
  std::pair<int, std::string> saved;
  {
    const Job job(groups);
    burn(job);
    expect_nobody(job);
    saved = newest_checkpoint(job.output());
    throttle(job);
    expect_end(job);
  }
  const auto& [steps, bytes] = saved;
  REQUIRE(steps > 0);
  const Folder quiet;
  const std::vector<std::string> alone = training(standalone(2), quiet / "out", Job::config(steps));
  const Ended ended = run(groups.in(0, alone));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(bytes == model(quiet / "out"));
}

}  // namespace dtrun::straggler_test
