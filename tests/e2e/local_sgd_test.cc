// Local replicas between hosts with a slow network: the bytes that go over it, and what that saves.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::local_sgd_test {

using namespace dtrun::test;
using nlohmann::json;

namespace {

using Words = std::vector<std::string>;

constexpr int kParameters = 64 * 2048 + 2048 + 2048 * 10 + 10;  // 0.6 MB
constexpr double kSync = 4.0 * kParameters;                     // bytes to a peer

// Trainings of one worker on each host.
class Network {
 public:
  Network() {
    for (int host = 0; host < 3; ++host)
      REQUIRE(run(hosts_.on(host, {"tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "50mbit",
                                   "burst", "64kb", "latency", "500ms"}))
                  .exit_code == 0);
  }

  struct Outcome {
    double bytes = 0;
    double steps_per_second = 0;       // on this machine
    double fair_steps_per_second = 0;  // had each process a processor whenever it wanted one
    std::string model;
  };
  Outcome train(const std::string& output, int hosts, int steps, int replicas, int every) {
    const double before = sent();
    const Stopwatch watch;
    std::vector<std::unique_ptr<Process>> jobs;
    for (int host = 0; host < hosts; ++host)
      jobs.push_back(
          std::make_unique<Process>(hosts_.on(host, job(host, hosts, output, steps, replicas, every))));
    for (const auto& one : jobs) {
      const Ended ended = one->end();
      REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    }
    const auto place = hosts_.seen_from_here(0, output);
    const double share = std::chrono::duration<double>(watch.fair()) / watch.wall();
    const auto [done, seconds] = steps_and_seconds(place);
    return {.bytes = sent() - before,
            .steps_per_second = done / seconds,
            .fair_steps_per_second = done / seconds / share,
            .model = model(place)};
  }

 private:
  Words job(int host, int hosts, const std::string& output, int steps, int replicas, int every) const {
    json config{{"output_dir", (hosts_.directory() / output).string()},
                {"model", {{"type", "mlp"}, {"hidden_sizes", {2048}}}},
                {"data", {{"type", "synthetic"}, {"samples", 2000}, {"shape", {1, 8, 8}}}},
                {"train",
                 {{"max_steps", steps},
                  {"global_batch_size", 16},
                  {"micro_batch_size", 2},
                  {"momentum", 0},
                  {"eval_steps", 0},
                  {"save_steps", 0},
                  {"logging_steps", every},
                  {"local_replicas", replicas}}}};
    if (replicas > 1) config["train"]["sync_every"] = every;
    const std::string file = output + std::to_string(host) + ".json";
    write_text(folder_ / file, config.dump());
    return {kDtrun,
            "--nnodes",
            std::to_string(hosts),
            "--node_rank",
            std::to_string(host),
            "--nproc_per_node",
            "1",
            "--lanes",
            "1",
            "--rdzv_endpoint",
            Hosts::address(0) + ":29400",
            "--rdzv_id",
            output,
            "--insecure",
            (folder_ / file).string()};
  }
  double sent() const {
    return std::stod(run(hosts_.on(1, {"awk", "/eth0:/ { print $10 }", "/proc/net/dev"})).out);
  }
  // Between the first and the last line of metrics.
  static std::pair<double, double> steps_and_seconds(const std::filesystem::path& output) {
    std::istringstream metrics(read_text(output / "metrics.jsonl"));
    std::vector<json> lines;
    for (std::string line; std::getline(metrics, line);)
      if (json event = json::parse(line); event["event"] == "train") lines.push_back(std::move(event));
    REQUIRE(lines.size() >= 2);
    const auto between = [&](const char* what) {
      return lines.back()[what].get<double>() - lines.front()[what].get<double>();
    };
    return {between("step"), between("time")};
  }

  const Folder folder_;
  Hosts hosts_{3};
};

}  // namespace

TEST_CASE(
    "over 50 Mbit/s local replicas send their parameters once in H steps, and train ten times as fast") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Network network;
  const auto plain = network.train("plain", 2, 12, 1, 1);
  CHECK(plain.bytes > 12 * kSync);
  MESSAGE("plain: " << plain.steps_per_second << " steps/s, " << plain.bytes / 12 << " bytes a step");
  double fastest = 0;
  for (const int every : {8, 32, 128}) {
    CAPTURE(every);
    const int steps = 4 * every;
    const auto local = network.train("local" + std::to_string(every), 2, steps, 2, every);
    MESSAGE("H = " << every << ": " << local.steps_per_second << " steps/s, " << local.bytes / steps
                   << " bytes a step");
    // The rest is the meeting, and what agents say.
    CHECK(local.bytes > 4 * kSync);
    CHECK(local.bytes < 4 * kSync * 1.1 + 200e3);
    fastest = local.fair_steps_per_second;
  }
  CHECK(fastest > 10 * plain.steps_per_second);
  // Two hosts share a replica, whose gradients go over the network too; and one has both.
  const auto by_three = network.train("three", 3, 16, 2, 8), by_one = network.train("one", 1, 16, 2, 8);
  CHECK(by_three.model == by_one.model);
}

}  // namespace dtrun::local_sgd_test
