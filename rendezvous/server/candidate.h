// One of several hosts that may lead: drives the pure state machine of election.h with real time and real
// connections, and keeps the coordinator of this host from acting while it does not lead. It has a strand of
// its own: a coordinator that ten thousand agents join at once goes on asking for votes. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/election/election.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/server/server.h"
#include "rendezvous/server/strand.h"
#include "rendezvous/wire/peers.h"

namespace dtrun::rendezvous {

class Candidate final : public Fence {
 public:
  // Calls to the coordinator, on this object's strand.
  struct Calls {
    std::function<void(const election::BecomeLeader& lead)> lead;
    std::function<void()> step_down;
    std::function<void()> forget;
    std::function<void(std::int64_t version)> written;
  };
  Candidate(CandidateOptions options, Calls calls);
  ~Candidate() override;

  // Leads no more, and tells the others, so that one of them leads at once. Before the server's shutdown.
  void retire();

  bool leads() const;
  bool acts(std::int64_t term) const override;
  void resign(std::int64_t term) override;
  void write(std::int64_t term, std::string record) override;
  void heard_of(std::int64_t term) override;

  // ---- the service
  // Called with the answer; with nothing if the other host has another list, or takes this host for another
  // one.
  using Answer = std::function<void(std::optional<election::VoteReply>)>;
  void asked(int from, int to, const std::string& list, const election::VoteRequest& ask, Answer answer);
  // Calls `told` once there is another leader than the one of `known` (a term), or after `wait`. REQUIRES:
  // the asker means this list, or any.
  using Told = std::function<void(election::Leader)>;
  void await_leader(std::uint64_t id, election::Term known, Millis wait, Told told);
  void forget_waiter(std::uint64_t id);

  const std::string& list() const { return options_.list; }
  int place() const { return options_.settings.self; }

 private:
  struct Waiter {
    election::Term known = 0;
    Millis until = 0;
    Told told;
  };

  void take(const election::Event& event, const Answer& answer = nullptr);
  void carry_out(const election::Action& action);
  Millis tend();
  void tell_waiters();

  const CandidateOptions options_;
  const Calls calls_;
  mutable std::mutex mutex_;  // guards the next two
  election::Term term_ = 0;   // in which this host leads, 0: it does not
  Millis until_ = 0;
  // The strand's.
  election::State state_;
  std::map<std::uint64_t, Waiter> waiters_;
  bool retired_ = false;
  std::unique_ptr<Peers> peers_;
  Strand strand_;
};

// The Election service.
class ElectionService final : public v1::Election::CallbackService {
 public:
  explicit ElectionService(Candidate& candidate) : candidate_(candidate) {}

  grpc::ServerUnaryReactor* Vote(grpc::CallbackServerContext* context, const v1::VoteCall* request,
                                 v1::VoteReply* reply) override;
  grpc::ServerUnaryReactor* Leader(grpc::CallbackServerContext* context, const v1::LeaderRequest* request,
                                   v1::LeaderReply* reply) override;

 private:
  Candidate& candidate_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace dtrun::rendezvous
