#include "cmd/doctor/prober.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "cmd/doctor/core/cluster_checks.h"
#include "cmd/doctor/core/matrix.h"
#include "cmd/doctor/facts_json.h"
#include "cmd/doctor/node_facts.h"
#include "cmd/doctor/peer_link.h"
#include "cmd/doctor/report_json.h"
#include "cmd/doctor/run_store.h"
#include "proto/base/clock.h"

namespace dtrun::doctor {
namespace {

using namespace std::chrono_literals;

// Longer than what any node does between two of its words.
constexpr auto kForOthers = 30'000ms;
// Of a pair that must be in the same round.
constexpr auto kForPartner = 10'000ms;
constexpr int kMostRounds = 31, kRoundsOfMany = 5;
constexpr std::size_t kLooksAgain = 8, kLooks = 2;
constexpr std::size_t kLinksAtOnce = 64;

int number_of_variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

std::string key_of(const std::string& what, int rank) {
  return "doctor/" + what + "/" + std::to_string(rank);
}

class Prober {
 public:
  Prober(RunStore&& store, const Job& job)
      : store_(std::move(store)),
        rank_(number_of_variable("RANK")),
        size_(number_of_variable("WORLD_SIZE")),
        job_(job) {}

  Result<Report> run(int wanted, double waited) {
    cluster_.wanted = std::max(wanted, size_);
    cluster_.waited = waited;
    Status status = introduce();
    if (status.ok()) status = open_links();
    if (status.ok()) status = measure_rates();
    if (status.ok()) status = look_again();
    if (!status.ok()) return status;
    return agree();
  }

 private:
  std::vector<PathFacts>& own_row() { return cluster_.paths[static_cast<std::size_t>(rank_)]; }
  PathFacts& path(int from, int to) {
    return cluster_.paths[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  }

  Status introduce() {
    ASSIGN_OR_RETURN(const PeerListener listener, PeerListener::open());
    const char* const main_address = std::getenv("MASTER_ADDR");
    Introduction own{.facts = gather(job_, {.endpoint_host = main_address != nullptr ? main_address : "",
                                            .endpoint_port = 9,
                                            .looks_at_listener = false}),
                     .peer = {.port = listener.port(), .nonce = listener.nonce()}};
    own.peer.address = own.facts.route.address;
    own.facts.name.has_peers = true;
    RETURN_IF_ERROR(store_.set(key_of("node", rank_), to_json(own)));
    for (int rank = 0; rank < size_; ++rank) {
      ASSIGN_OR_RETURN(const std::string told, store_.get(key_of("node", rank), kForOthers));
      const auto introduction = introduction_of(told);
      if (!introduction) return Status(kExitSoftware, "a node of another build of dtrun");
      cluster_.nodes.push_back(introduction->facts);
      peers_.push_back(introduction->peer);
    }
    cluster_.paths.assign(static_cast<std::size_t>(size_),
                          std::vector<PathFacts>(static_cast<std::size_t>(size_)));
    return {};
  }

  // To all others at once: one that does not answer holds nobody up.
  Status open_links() {
    links_.resize(static_cast<std::size_t>(size_));
    back_.resize(static_cast<std::size_t>(size_));
    std::vector<PathFacts> names(static_cast<std::size_t>(size_));
    for (std::size_t first = 0; first < links_.size(); first += kLinksAtOnce) {
      std::vector<std::thread> threads;
      for (std::size_t to = first; to < std::min(links_.size(), first + kLinksAtOnce); ++to) {
        if (static_cast<int>(to) == rank_) continue;
        threads.emplace_back([this, to, &names] {
          names[to] =
              look_up_peer(cluster_.nodes[to].name.host, peers_[to].address, cluster_.nodes[to].name.own);
          links_[to] = PeerLink::open(peers_[to]);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    for (std::size_t to = 0; to < links_.size(); ++to) {
      if (!links_[to]) continue;
      own_row()[to] = links_[to]->path();
      own_row()[to].wrong_name = names[to].wrong_name;
      own_row()[to].name_fails = names[to].name_fails;
    }
    return {};
  }

  // The one with the lower rank measures, both ways. Its partner must not measure with a third meanwhile.
  Status measure_rates() {
    const auto rounds = rounds_of(size_, size_ <= kMostRounds + 1 ? kMostRounds : kRoundsOfMany);
    for (std::size_t round = 0; round < rounds.size(); ++round)
      for (const auto& [low, high] : rounds[round])
        if (rank_ == low || rank_ == high)
          RETURN_IF_ERROR(measure_pair(low, high, "round" + std::to_string(round)));
    RETURN_IF_ERROR(tell_row());
    return rank_ == 0 ? read_rows() : Status();
  }

  Status measure_pair(int low, int high, const std::string& round) {
    const int partner = rank_ == low ? high : low;
    RETURN_IF_ERROR(store_.set(key_of(round + "/here", rank_), ""));
    if (!store_.get(key_of(round + "/here", partner), kForPartner).ok())
      return {};  // it is lost, or still busy
    if (rank_ == high) {
      (void)store_.get(key_of(round + "/done", low), kForPartner);
      return {};
    }
    measure_with(high);
    return store_.set(key_of(round + "/done", low), "");
  }

  void measure_with(int other) {
    std::optional<PeerLink>& link = links_[static_cast<std::size_t>(other)];
    PathFacts& there = own_row()[static_cast<std::size_t>(other)];
    link->measure_rates(&back_[static_cast<std::size_t>(other)]);
    there.rate = link->path().rate;
    there.rate_of_cpu = link->path().rate_of_cpu;
  }

  // This node's row, and behind it the ways back to it that it measured.
  Status tell_row() {
    std::vector<PathFacts> row = own_row();
    row.insert(row.end(), back_.begin(), back_.end());
    return store_.set(key_of("paths", rank_), to_json(row));
  }

  Status read_rows() {
    std::vector<std::vector<PathFacts>> backs;
    for (int rank = 0; rank < size_; ++rank) {
      ASSIGN_OR_RETURN(const std::string told, store_.get(key_of("paths", rank), kForOthers));
      const std::vector<PathFacts> both = paths_of(told).value_or(std::vector<PathFacts>());
      if (both.size() != 2 * static_cast<std::size_t>(size_))
        return Status(kExitSoftware, "a node told no paths");
      cluster_.paths[static_cast<std::size_t>(rank)].assign(both.begin(), both.begin() + size_);
      backs.emplace_back(both.begin() + size_, both.end());
    }
    for (int to = 0; to < size_; ++to)
      for (int from = 0; from < size_; ++from) {
        const PathFacts& back = backs[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
        if (back.rate < 0) continue;
        path(from, to).rate = back.rate;
        path(from, to).rate_of_cpu = back.rate_of_cpu;
      }
    return {};
  }

  // Nobody is blamed for what a busy moment did: doubtful pairs are measured again, one after the other,
  // while the other nodes wait.
  Status look_again() {
    for (std::size_t look = 0; look < kLooks; ++look) {
      const std::string name = "look" + std::to_string(look);
      ASSIGN_OR_RETURN(std::vector<Pair> pairs, agreed_pairs(name));
      if (pairs.empty()) return {};
      for (std::size_t i = 0; i < pairs.size(); ++i)
        RETURN_IF_ERROR(look_at(pairs[i], name + "/" + std::to_string(i)));
    }
    return {};
  }

  Result<std::vector<Pair>> agreed_pairs(const std::string& look) {
    std::vector<Pair> pairs;
    if (rank_ == 0) {
      pairs = doubtful_pairs(cluster_, kLooksAgain);
      std::string text;
      for (const auto& [low, high] : pairs) text += std::to_string(low) + " " + std::to_string(high) + " ";
      RETURN_IF_ERROR(store_.set(key_of(look, 0), text));
      return pairs;
    }
    ASSIGN_OR_RETURN(const std::string told, store_.get(key_of(look, 0), kForOthers));
    std::istringstream words(told);
    for (Pair pair; words >> pair.first >> pair.second;) pairs.push_back(pair);
    return pairs;
  }

  // The pair's lower rank measures and tells; rank 0 takes it in, and only then comes the next pair.
  Status look_at(const Pair& pair, const std::string& look) {
    const auto [low, high] = pair;
    if (rank_ == low) {
      std::optional<PeerLink>& link = links_[static_cast<std::size_t>(high)];
      PathFacts back;
      link->measure_round_trips();
      link->measure_rates(&back);
      RETURN_IF_ERROR(store_.set(key_of(look, low), to_json({link->path(), back})));
    }
    if (rank_ != 0 && rank_ != low) return store_.get(key_of(look, low), kForOthers).status();
    const Result<std::string> told = store_.get(key_of(look, low), kForOthers);
    if (!told.ok() || rank_ != 0) return told.status();
    const auto again = paths_of(told.value());
    if (!again || again->size() != 2) return Status(kExitSoftware, "a node told no paths");
    take_better(path(low, high), again->front());
    PathFacts back = again->back();
    back.round_trip_least = again->front().round_trip_least;
    back.round_trip = again->front().round_trip;
    take_better(path(high, low), back);
    return {};
  }

  Result<Report> agree() {
    const std::string key = key_of("report", 0);
    if (rank_ == 0) {
      const Report report = cluster_report(cluster_);
      RETURN_IF_ERROR(store_.set(key, report_json(report, false)));
      return leave_together(report);
    }
    ASSIGN_OR_RETURN(const std::string told, store_.get(key, kForOthers));
    const auto report = report_of(told);
    if (!report) return Status(kExitSoftware, "a node of another build of dtrun");
    return leave_together(*report);
  }

  // Rank 0's agent may hold the store: it goes last.
  Result<Report> leave_together(const Report& report) {
    (void)store_.set(key_of("over", rank_), "");
    for (int rank = 0; rank_ == 0 && rank < size_; ++rank)
      (void)store_.get(key_of("over", rank), kForPartner);
    return report;
  }

  RunStore store_;
  const int rank_, size_;
  const Job& job_;
  ClusterFacts cluster_;  // paths: this node's row; on rank 0 in the end all of them
  std::vector<Peer> peers_;
  std::vector<std::optional<PeerLink>> links_;  // nothing for this node itself
  std::vector<PathFacts> back_;                 // from others to this node, as measured here
};

}  // namespace

Result<Report> probe_between(const Job& job, int wanted, double began_at) {
  ASSIGN_OR_RETURN(RunStore store, RunStore::open());
  return Prober(std::move(store), job).run(wanted, steady_seconds() - began_at);
}

}  // namespace dtrun::doctor
