// `dtrun trace` of real trainings: every rank on one clock, also where the clocks of two hosts show other
// times.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::trace_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

// node1's clock shows so many seconds more, as after another boot.
constexpr int kAhead = 1000;
const Words kOtherClock{"unshare", "--time", "--monotonic", std::to_string(kAhead)};

// A training of two workers on each of two hosts, which goes on until it is told to end.
class TwoNodes {
 public:
  TwoNodes() : hosts_(2) {
    for (int node = 0; node < 2; ++node) {
      const Words options = {"--nnodes", "2",         "--nproc_per_node", "2",           "--rdzv_endpoint",
                             endpoint(), "--rdzv_id", "traced",           "--node_rank", std::to_string(node),
                             "--lanes",  "1",         "--max_restarts",   "2",           "--insecure"};
      const Words argv = endless_training(options, hosts_.directory() / "out", {"train.save_steps=10"});
      jobs_.push_back(
          std::make_unique<Process>(hosts_.on(node, node == 1 ? joined(kOtherClock, argv) : argv)));
    }
    REQUIRE_MESSAGE(trains(output(), 3), job(0).err());
  }

  static std::string endpoint() { return Hosts::address(0) + ":29411"; }
  Process& job(int node) { return *jobs_[static_cast<std::size_t>(node)]; }
  const Hosts& hosts() const { return hosts_; }
  std::filesystem::path output() const { return hosts_.seen_from_here(0, "out"); }
  std::vector<pid_t> workers(int node) { return children_of(job(node).pid(), "dtrun-worker"); }

  Words trace(const Words& options) const {
    return hosts_.on(
        0,
        joined({kDtrun, "trace", "traced", "--rdzv_endpoint", endpoint(), "--insecure", "-o", "-"}, options));
  }

 private:
  Hosts hosts_;
  std::vector<std::unique_ptr<Process>> jobs_;
};

// Each event has what the format asks for, and a track's spans are one inside the other, or one after the
// other.
void check_format(const json& file) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> open;  // by track
  std::map<int, std::string> arrows;
  int spans = 0, overlapping = 0;
  for (const json& event : file.at("traceEvents")) {
    const std::string phase = event.at("ph");
    REQUIRE_MESSAGE(std::string("MXsfi").find(phase) != std::string::npos, event.dump());
    REQUIRE(event.at("name").is_string());
    REQUIRE(event.at("pid").is_number_integer());
    REQUIRE(event.at("tid").is_number_integer());
    if (phase == "M") continue;
    const double begin = event.at("ts");
    REQUIRE(begin >= 0);
    if (phase == "s" || phase == "f") arrows[event.at("id")] += phase;
    if (phase != "X") continue;
    const double end = begin + event.at("dur").get<double>();
    auto& stack = open[{event["pid"], event["tid"]}];
    while (!stack.empty() && stack.back().second <= begin + 1e-6) stack.pop_back();
    overlapping += !stack.empty() && end > stack.back().second + 2e-3;  // of a nanosecond each at least
    stack.emplace_back(begin, end);
    ++spans;
  }
  CHECK(spans > 50);
  CHECK(overlapping == 0);
  CHECK_FALSE(arrows.empty());
  for (const auto& [id, phases] : arrows) CHECK(phases.size() == 2);
}

std::vector<json> spans_of(const json& file, const std::string& category) {
  std::vector<json> found;
  for (const json& event : file.at("traceEvents"))
    if (event["ph"] == "X" && event["cat"] == category) found.push_back(event);
  return found;
}

// The most microseconds by which a bucket was there before it was sent.
double most_backwards(const json& file) {
  std::map<std::tuple<int, int, int, int, int>, double>
      sent;  // by generation, step, bucket, round and sender
  const auto key = [](const json& at, int sender) {
    return std::tuple<int, int, int, int, int>(at["generation"], at["step"], at["bucket"],
                                               at.value("round", -1), sender);
  };
  for (const json& span : spans_of(file, "send"))
    if (!span["args"].contains("peer") && span["args"].contains("bucket"))
      sent[key(span["args"], span["pid"])] = span["ts"];
  double most = -1e9;
  int compared = 0;
  for (const json& span : spans_of(file, "receive")) {
    const auto from = sent.find(key(span["args"], span["args"].value("peer", -1)));
    if (from == sent.end()) continue;
    most = std::max(most, from->second - span["ts"].get<double>() - span["dur"].get<double>());
    ++compared;
  }
  CHECK(compared > 20);
  return most;
}

json trace_of(const Ended& asked) {
  json file = json::parse(asked.out, nullptr, false);
  REQUIRE_MESSAGE(file.is_object(), asked.err);
  return file;
}

}  // namespace

TEST_SUITE("namespaces") {
  TEST_CASE(
      "all ranks are on one clock, whatever their hosts' show, and a traced run computes the same bits") {
    if (!why_no_hosts().empty()) return skip(why_no_hosts());
    if (run(joined(kOtherClock, {"true"})).exit_code != 0) return skip("this kernel has no time namespaces");
    TwoNodes job;

    const Ended whole = run(job.trace({"--steps", "10"}));
    REQUIRE_MESSAGE(whole.exit_code == 0, whole.err);
    const json file = trace_of(whole);
    check_format(file);
    CHECK(file["otherData"]["world_size"] == 4);
    CHECK(file["otherData"]["missing"].empty());
    for (const char* kind : {"step", "math", "data", "update", "exchange", "send", "receive", "stop_vote"}) {
      std::set<int> ranks;
      for (const json& span : spans_of(file, kind)) ranks.insert(span["pid"].get<int>());
      CHECK_MESSAGE((ranks == std::set<int>{0, 1, 2, 3}), kind);
    }
    CHECK_FALSE(spans_of(file, "save").empty());
    const double error = file["otherData"]["clock_error_us"];
    CHECK(error > 0);
    CHECK(error < 20'000);  // a busy machine answers late
    CHECK(most_backwards(file) <= error);
    for (const json& clock : file["otherData"]["clocks"]) {
      const double expected = clock["host"] == "node1" ? -kAhead * 1e6 : 0;
      CHECK_MESSAGE(std::abs(clock["offset_us"].get<double>() - expected) <= clock["error_us"], clock.dump());
    }

    // Whoever traces is killed: the next one waits until the nodes have given that trace up.
    Process gone(job.trace({"--steps", "1000"}));
    REQUIRE(gone.wait_for_err("tracing run traced until "));
    const Words again = job.trace({"--steps", "1"});
    CHECK(contains(run(again).err, "another dtrun trace of this run is under way"));
    kill(gone.pid(), SIGKILL);
    gone.wait();
    Ended next;
    CHECK_MESSAGE(eventually([&] { return (next = run(again)).exit_code == 0; }), next.err);

    // One that is interrupted writes what there is, and has told the nodes that it is over.
    Process interrupted(job.trace({"--steps", "1000"}));
    REQUIRE(interrupted.wait_for_err("tracing run traced until "));
    kill(interrupted.pid(), SIGINT);
    const Ended cut = interrupted.end();
    CHECK_MESSAGE(cut.exit_code == 128 + SIGINT, cut.err);
    CHECK_MESSAGE(contains(cut.err, "the trace is not whole: rank 0 has "), cut.err);
    check_format(trace_of(cut));
    next = run(again);
    CHECK_MESSAGE(next.exit_code == 0, next.err);

    // A worker is killed meanwhile.
    Process through(job.trace({"--steps", "100"}));
    REQUIRE(through.wait_for_err("tracing run traced until "));
    REQUIRE(trains(job.output(), steps_done(job.output()) + 5));
    const std::vector<pid_t> before = job.workers(1);
    REQUIRE_FALSE(before.empty());
    kill(before.back(), SIGKILL);
    const json killed = trace_of(through.end());
    check_format(killed);
    std::set<std::string> turns;
    for (const json& event : killed["traceEvents"])
      if (event["ph"] == "i") turns.insert(event["name"].get<std::string>());
    CHECK_MESSAGE(turns.contains("last of process " + std::to_string(before.back())), json(turns).dump());
    CHECK_MESSAGE(turns.contains("generation 2"), json(turns).dump());

    end_as_calm({&job.job(0), &job.job(1)}, {job.output(), job.hosts().seen_from_here(1, "out")});
  }
}

TEST_CASE("what cannot be traced is refused with the reason") {
  const Folder folder;
  const Words registry{"XDG_RUNTIME_DIR=" + folder.path().string()};
  const auto traced = [&](const Words& words) {
    return run(joined({kDtrun, "trace", "-o", "-"}, words), registry);
  };
  CHECK(contains(traced({}).err, "this user has no run that goes on here"));
  const Ended unknown = traced({"nobody"});
  CHECK(unknown.exit_code == 69);
  CHECK(contains(unknown.err, "this user has no run nobody here"));
  CHECK(contains(traced({"--steps", "0"}).err, "--steps=0"));

  Process program({kDtrun, "--standalone", "--nproc_per_node", "1", "--rdzv_id", "shell", "--", "/bin/sh",
                   "-c", "echo up; exec sleep 100"},
                  registry);
  REQUIRE(program.wait_for_out("up"));
  const Ended refused = traced({"shell"});
  CHECK(refused.exit_code == 69);
  CHECK_MESSAGE(contains(refused.err, "run shell is a program of its own: only dtrun's own trainer"),
                refused.err);
  const Ended nowhere = run({kDtrun, "trace", "shell", "-o", "/nonexistent/x.json"}, registry);
  CHECK(nowhere.exit_code == 73);
  CHECK_MESSAGE(contains(nowhere.err, "cannot write /nonexistent/x.json: No such file or directory; -o FILE"),
                nowhere.err);
  kill(program.pid(), SIGTERM);
  program.end();
  const Ended over = traced({"shell"});
  CHECK(over.exit_code == 69);
  CHECK_MESSAGE(contains(over.err, "run shell is over: only a run that goes on can be traced"), over.err);
}

}  // namespace dtrun::trace_test
