#include "rendezvous/server/candidate.h"

#include <algorithm>
#include <utility>

#include "rendezvous/wire/election.h"

namespace dtrun::rendezvous {
namespace {

// A call for the leader may be held for this long.
constexpr Millis kLongestWaitForLeader = 10000;

}  // namespace

Candidate::Candidate(CandidateOptions options, Calls calls)
    : options_(std::move(options)),
      calls_(std::move(calls)),
      state_(election::begin(options_.settings, steady_now())) {
  peers_ = options_.peers([this](int from, election::VoteReply answer) {
    strand_.post([this, from, answer = std::move(answer)] { take({.from = from, .body = answer}); });
  });
  strand_.start([this] { return tend(); });
  strand_.post([] {});  // it looks at the first deadline
}

Candidate::~Candidate() {
  retire();
  peers_.reset();
  strand_.stop();
}

void Candidate::retire() {
  strand_.post([this] {
    if (!std::exchange(retired_, true)) take({.body = election::Retire{}});
  });
  peers_->flush(std::chrono::milliseconds(100));
}

bool Candidate::acts(std::int64_t term) const {
  const std::lock_guard lock(mutex_);
  return term_ == term && steady_now() < until_;
}

bool Candidate::leads() const {
  const std::lock_guard lock(mutex_);
  return term_ > 0 && steady_now() < until_;
}

void Candidate::resign(std::int64_t term) {
  strand_.post([this, term] { take({.body = election::Resign{term}}); });
}

void Candidate::write(std::int64_t term, std::string record) {
  strand_.post([this, term, record = std::move(record)] { take({.body = election::Write{term, record}}); });
}

void Candidate::heard_of(std::int64_t term) {
  strand_.post([this, term] { take({.body = election::ObservedTerm{term}}); });
}

void Candidate::asked(int from, int to, const std::string& list, const election::VoteRequest& ask,
                      Answer answer) {
  if (list != options_.list || to != options_.settings.self) return answer(std::nullopt);
  strand_.post([this, from, ask, answer = std::move(answer)] { take({.from = from, .body = ask}, answer); });
}

void Candidate::take(const election::Event& event, const Answer& answer) {
  std::vector<election::Action> actions = election::step(state_, event, steady_now());
  {
    // Before any action is carried out: from here on acts() answers by the new state.
    const std::lock_guard lock(mutex_);
    term_ = state_.serves ? state_.term : 0;
    until_ = election::leads_until(state_);
  }
  std::optional<election::VoteReply> said;
  for (election::Action& action : actions) {
    if (auto* own = std::get_if<election::VoteReply>(&action.body))
      said = std::move(*own);
    else
      carry_out(action);
  }
  if (answer) answer(said.value_or(election::VoteReply{.kind = election::VoteRequest::kStepDown}));
}

void Candidate::carry_out(const election::Action& action) {
  if (const auto* ask = std::get_if<election::VoteRequest>(&action.body)) return peers_->ask(action.to, *ask);
  if (const auto* lead = std::get_if<election::BecomeLeader>(&action.body)) return calls_.lead(*lead);
  if (const auto* written = std::get_if<election::Written>(&action.body))
    return calls_.written(written->version);
  if (std::holds_alternative<election::Forget>(action.body)) return calls_.forget();
  calls_.step_down();
}

Millis Candidate::tend() {
  if (election::next_deadline(state_) <= steady_now()) take({.body = election::Tick{}});
  tell_waiters();
  Millis next = election::next_deadline(state_);
  for (const auto& [id, waiter] : waiters_) next = std::min(next, waiter.until);
  return next;
}

void Candidate::await_leader(std::uint64_t id, election::Term known, Millis wait, Told told) {
  strand_.post([this, id, known, wait, told = std::move(told)] {
    waiters_[id] = {known, steady_now() + std::clamp<Millis>(wait, 0, kLongestWaitForLeader), told};
  });
}

void Candidate::forget_waiter(std::uint64_t id) {
  strand_.post([this, id] {
    auto waiter = waiters_.extract(id);
    if (!waiter.empty()) waiter.mapped().told({});
  });
}

void Candidate::tell_waiters() {
  const Millis now = steady_now();
  const election::Leader leader = election::known_leader(state_, now);
  std::erase_if(waiters_, [&](const auto& entry) {
    const Waiter& waiter = entry.second;
    if (waiter.known == leader.term && now < waiter.until) return false;
    waiter.told(leader);
    return true;
  });
}

// ---- the service

namespace {

// A call that waits for news of the leader. Deletes itself when gRPC is done with it, which is after
// finish().
class LeaderWait final : public grpc::ServerUnaryReactor {
 public:
  LeaderWait(std::uint64_t id, Candidate& candidate, v1::LeaderReply* reply)
      : id_(id), candidate_(candidate), reply_(reply) {}

  void finish(const election::Leader& leader) {
    reply_->set_term(leader.term);
    reply_->set_host(leader.host);
    Finish(grpc::Status::OK);
  }

 private:
  // By id: the call may have been answered, and be gone, by the time the strand gets there.
  void OnCancel() override { candidate_.forget_waiter(id_); }
  void OnDone() override { delete this; }

  const std::uint64_t id_;
  Candidate& candidate_;
  v1::LeaderReply* const reply_;
};

grpc::Status other_list(const Candidate& candidate) {
  return {grpc::StatusCode::FAILED_PRECONDITION,
          "it is host " + std::to_string(candidate.place()) + " of " + candidate.list()};
}

}  // namespace

grpc::ServerUnaryReactor* ElectionService::Vote(grpc::CallbackServerContext* context,
                                                const v1::VoteCall* request, v1::VoteReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  candidate_.asked(request->from(), request->to(), request->list(), from_wire(request->ask()),
                   [this, reactor, reply](const std::optional<election::VoteReply>& answer) {
                     if (answer) to_wire(*answer, reply);
                     reactor->Finish(answer ? grpc::Status::OK : other_list(candidate_));
                   });
  return reactor;
}

grpc::ServerUnaryReactor* ElectionService::Leader(grpc::CallbackServerContext* context,
                                                  const v1::LeaderRequest* request, v1::LeaderReply* reply) {
  const bool is_meant = request->list() == candidate_.list() && request->to() == candidate_.place();
  if (!request->list().empty() && !is_meant) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(other_list(candidate_));
    return reactor;
  }
  const std::uint64_t id = next_id_++;
  auto* call = new LeaderWait(id, candidate_, reply);
  candidate_.await_leader(id, request->known_term(), request->wait_ms(),
                          [call](const election::Leader& leader) { call->finish(leader); });
  return call;
}

}  // namespace dtrun::rendezvous
