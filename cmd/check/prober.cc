#include "cmd/check/prober.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "cmd/check/check_json.h"
#include "cmd/check/connectivity_probe.h"
#include "cmd/check/core/findings.h"
#include "cmd/check/network.h"
#include "cmd/check/peer_link.h"
#include "cmd/check/run_store.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;

constexpr auto kToConnect = 2000ms;
// Longer than what any node does between two of its words.
constexpr auto kForOthers = 30'000ms;
// Of a node that another one waits for to measure: it may be lost, or busy.
constexpr auto kForPeer = 10'000ms;
constexpr int kMostRounds = 31, kRoundsOfMany = 5, kLooks = 2;
constexpr std::size_t kPeersAtOnce = 64;

Status other_build() { return Status(kExitSoftware, "a node of another build of dtrun"); }

std::string text_of_variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::string key_of(const std::string& what, int rank) {
  return "doctor/" + what + "/" + std::to_string(rank);
}

class Prober {
 public:
  Prober(RunStore&& store, const CheckedJob& job)
      : store_(std::move(store)),
        rank_(std::atoi(text_of_variable("RANK").c_str())),
        size_(std::atoi(text_of_variable("WORLD_SIZE").c_str())),
        job_(job) {}

  Result<std::string> run(int wanted) {
    cluster_.wanted = std::max(wanted, size_);
    RETURN_IF_ERROR(introduce());
    open_connections();
    RETURN_IF_ERROR(measure_rates());
    RETURN_IF_ERROR(measure_slow_paths_alone());
    RETURN_IF_ERROR(store_.set(key_of("paths", rank_), to_json(paths_)));
    Result<std::string> report = rank_ == 0 ? make_report() : store_.get(kReport, kForOthers);
    leave_together();
    return report;
  }

 private:
  static constexpr char kReport[] = "doctor/report";

  Status introduce() {
    ASSIGN_OR_RETURN(ProbeListener listener, ProbeListener::open());
    const Surroundings others{
        .endpoint_host = text_of_variable("MASTER_ADDR"), .endpoint_port = 9, .looks_at_listener = false};
    Introduction own{.facts = gather(job_, others), .port = listener.port(), .nonce = listener.nonce()};
    own.facts.has_peers = true;
    serve_peers(std::move(listener));
    RETURN_IF_ERROR(store_.set(key_of("node", rank_), to_json(own)));
    for (int rank = 0; rank < size_; ++rank) {
      ASSIGN_OR_RETURN(const std::string told, store_.get(key_of("node", rank), kForOthers));
      auto introduction = introduction_of(told);
      if (!introduction) return other_build();
      peers_.push_back({.port = introduction->port, .nonce = introduction->nonce});
      if (rank != rank_) peers_.back().addresses = {introduction->facts.address};
      cluster_.nodes.push_back(std::move(introduction->facts));
    }
    return {};
  }

  // To all others at once: one that does not answer holds nobody up.
  void open_connections() {
    const std::vector<ProbeResult> found = probe_all(peers_, kToConnect, nullptr, &connections_);
    paths_.resize(peers_.size());
    for (std::size_t first = 0; first < peers_.size(); first += kPeersAtOnce) {
      std::vector<std::thread> threads;
      for (std::size_t to = first; to < std::min(peers_.size(), first + kPeersAtOnce); ++to) {
        if (peers_[to].addresses.empty()) continue;
        threads.emplace_back([this, to, &why = found[to].why_not] {
          paths_[to].wrong_name = wrong_meaning(cluster_.nodes[to].host, cluster_.nodes[to].own);
          if (connections_[to].open()) return try_messages(connections_[to].get(), &paths_[to]);
          // Without the address in front.
          paths_[to].failure = why.front().substr(peers_[to].addresses.front().size() + 2);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }

  // In each round every node sends to one other, and another one sends to it.
  Status measure_rates() {
    const int rounds = size_ <= kMostRounds + 1 ? size_ - 1 : kRoundsOfMany;
    const auto step = [&](int round) { return 1 + round % rounds * (size_ - 1) / rounds; };
    const auto key = [](int round, int rank) { return key_of("round" + std::to_string(round), rank); };
    for (int round = 0; round < kLooks * rounds; ++round) {
      const int to = (rank_ + step(round)) % size_;
      // The one that sent there in the round before has ended.
      if (round > 0) (void)store_.get(key(round - 1, (to - step(round - 1) + size_) % size_), kForPeer);
      PathFacts& path = paths_[static_cast<std::size_t>(to)];
      if (path.failure.empty() && !path.large_fails)
        measure_rate(connections_[static_cast<std::size_t>(to)].get(), &path);
      RETURN_IF_ERROR(store_.set(key(round, rank_), ""));
    }
    return {};
  }

  // While all send, each holds up the others' processors too. So the slow paths of one node after the other
  // are measured once more, while nobody else sends: this look says whether the network was what held it up.
  Status measure_slow_paths_alone() {
    const auto rate = [](const PathFacts& path) { return path.rate; };
    RETURN_IF_ERROR(
        store_.set(key_of("best", rank_), std::to_string(std::ranges::max(paths_, {}, rate).rate)));
    std::vector<double> best;
    for (int rank = 0; rank < size_; ++rank) {
      ASSIGN_OR_RETURN(const std::string told, store_.get(key_of("best", rank), kForOthers));
      best.push_back(std::atof(told.c_str()));
    }
    if (rank_ > 0) (void)store_.get(key_of("alone", rank_ - 1), kForOthers);
    for (const int to : slow_paths(paths_, best)) {
      PathFacts& path = paths_[static_cast<std::size_t>(to)];
      PathFacts alone{.round_trip = path.round_trip};
      measure_rate(connections_[static_cast<std::size_t>(to)].get(), &alone);
      if (alone.rate < 0) continue;
      path.rate = std::max(path.rate, alone.rate);
      path.rate_of_cpu = alone.rate_of_cpu;
    }
    return store_.set(key_of("alone", rank_), "");
  }

  Result<std::string> make_report() {
    for (int rank = 0; rank < size_; ++rank) {
      ASSIGN_OR_RETURN(const std::string told, store_.get(key_of("paths", rank), kForOthers));
      cluster_.paths.push_back(paths_of(told).value_or(std::vector<PathFacts>()));
      if (cluster_.paths.back().size() != peers_.size()) return other_build();
    }
    std::string report = report_json(cluster_report(cluster_), false);
    RETURN_IF_ERROR(store_.set(kReport, report));
    return report;
  }

  // Rank 0's agent may hold the store: it goes last.
  void leave_together() {
    (void)store_.set(key_of("over", rank_), "");
    for (int rank = 0; rank_ == 0 && rank < size_; ++rank) (void)store_.get(key_of("over", rank), kForPeer);
  }

  RunStore store_;
  const int rank_, size_;
  const CheckedJob& job_;
  ClusterFacts cluster_;  // paths: on rank 0 in the end
  std::vector<ProbeTarget> peers_;
  std::vector<PathFacts> paths_;         // from this node
  std::vector<Descriptor> connections_;  // not open: to this node itself, and where none is reached
};

}  // namespace

Result<std::string> probe_between(const CheckedJob& job, int wanted) {
  ASSIGN_OR_RETURN(RunStore store, RunStore::open());
  return Prober(std::move(store), job).run(wanted);
}

}  // namespace dtrun::cmd
