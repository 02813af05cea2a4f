#include "rendezvous/core/admission/accept_queue.h"

#include <algorithm>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {
namespace {

// Only a holder of the key makes a source known, so the limit is as much as a large cluster needs.
constexpr std::size_t kMostKnown = 1 << 16;

// No address.
const std::string kMembers = "members";

double left_of(double failures, Millis counted_at, int forgiven_per_second, Millis now) {
  return std::max(0.0, failures - static_cast<double>(now - counted_at) / 1000 * forgiven_per_second);
}

// Handshakes under way count as failures to come: else as many as may go on at once would be free each time.
bool may_begin_after(double failures, std::size_t handshaking, int free) {
  return failures == 0 || failures + static_cast<double>(handshaking) + 1 <= free;
}

}  // namespace

AcceptQueue::Limits AcceptQueue::Limits::within(std::size_t files) {
  Limits limits;
  limits.handshaking = std::clamp<std::size_t>(files / 6, 1, limits.handshaking);
  const std::size_t left = files - std::min(files, 2 * limits.handshaking + 1);
  limits.waiting = std::clamp<std::size_t>(left, 2, limits.waiting);
  return limits;
}

std::optional<AcceptQueue::Id> AcceptQueue::who_goes(Millis now) const {
  const auto oldest_where_most = [&](const auto& count, bool silent) -> std::optional<Id> {
    const auto most =
        std::ranges::max_element(sources_, {}, [&](const auto& entry) { return count(entry.second); });
    if (count(most->second) == 0) return std::nullopt;
    const auto oldest = std::ranges::find_if(waiting_, [&](const auto& entry) {
      return entry.second.turn == most->first && !(silent && entry.second.greeted);
    });
    return oldest->first;
  };
  const auto waiting_sources = static_cast<std::size_t>(
      std::ranges::count_if(sources_, [](const auto& entry) { return entry.second.waiting > 0; }));
  auto goes = oldest_where_most(
      [&](const Source& source) {
        return !source.known && failures_of(source, now) > 0 ? source.waiting : 0;
      },
      false);
  if (!goes && strange_failures(now) > 0)
    goes = oldest_where_most([](const Source& source) { return source.known ? 0 : source.waiting; }, false);
  if (!goes) goes = oldest_where_most([](const Source& source) { return source.silent; }, true);
  if (goes) return goes;
  const auto members = sources_.find(kMembers);
  return oldest_where_most(
      [&](const Source& source) {
        const bool too_many = source.waiting > waiting_.size() / waiting_sources + 1;
        return too_many && (members == sources_.end() || &source != &members->second) ? source.waiting : 0;
      },
      false);
}

std::optional<AcceptQueue::Id> AcceptQueue::arrived(Id id, const std::string& source, Millis now) {
  std::optional<Id> goes;
  if (waiting_.size() >= limits_.waiting) goes = who_goes(now);
  if (goes) left(*goes);
  waiting_.emplace(id, Waiting{.source = source, .since = now, .turn = source});
  Source& its = sources_[source];
  its.known = known_.contains(source);
  ++its.waiting;
  ++its.silent;
  return goes;
}

void AcceptQueue::greeted(Id id, bool member, Millis now) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end() || found->second.greeted) return;
  found->second.greeted = true;
  Source& source = sources_[found->second.source];
  --source.silent;
  if (!member) return source.ready.push_back(id);
  Source& members = sources_[kMembers];
  members.known = true;
  if (!may_begin(members, now)) return source.ready.push_back(id);
  --source.waiting;
  ++members.waiting;
  members.ready.push_back(id);
  found->second.turn = kMembers;
  forget_idle(found->second.source);
}

void AcceptQueue::left(Id id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  const std::string turn = found->second.turn;
  --sources_[turn].waiting;
  if (!found->second.greeted) --sources_[turn].silent;
  waiting_.erase(found);
  forget_idle(turn);
}

double AcceptQueue::failures_of(const Source& source, Millis now) const {
  return left_of(source.failures.count, source.failures.counted_at, limits_.failures_per_second, now);
}

double AcceptQueue::strange_failures(Millis now) const {
  return left_of(strange_.count, strange_.counted_at, limits_.strange_failures_per_second, now);
}

std::size_t AcceptQueue::most_strange(Millis now) const {
  const std::size_t most = limits_.handshaking - limits_.handshaking / 4;
  return strange_failures(now) > 0 ? std::min(most, limits_.strange_at_once) : most;
}

bool AcceptQueue::may_begin(const Source& source, Millis now) const {
  return may_begin_after(failures_of(source, now), source.handshaking, limits_.failures) &&
         (source.known ||
          (strange_handshaking_ < most_strange(now) &&
           may_begin_after(strange_failures(now), strange_handshaking_, limits_.strange_failures)));
}

std::optional<AcceptQueue::Id> AcceptQueue::take_from(Source& source) {
  while (!source.ready.empty()) {
    const Id id = source.ready.front();
    source.ready.pop_front();
    if (waiting_.contains(id)) return id;
  }
  return std::nullopt;
}

std::vector<AcceptQueue::Id> AcceptQueue::take_next(Millis now) {
  std::vector<Id> next;
  for (std::size_t idle = 0; handshaking_.size() < limits_.handshaking && idle < sources_.size();) {
    auto turn = sources_.find(kMembers);  // they go first
    std::optional<Id> id;
    if (turn != sources_.end() && may_begin(turn->second, now)) id = take_from(turn->second);
    if (!id) {
      turn = sources_.upper_bound(last_);
      if (turn == sources_.end()) turn = sources_.begin();
      last_ = turn->first;
      if (may_begin(turn->second, now)) id = take_from(turn->second);
    }
    if (!id) {
      ++idle;
      continue;
    }
    Source& source = turn->second;
    idle = 0;
    const auto waiting = waiting_.extract(*id);
    --source.waiting;
    ++source.handshaking;
    if (!source.known) ++strange_handshaking_;
    handshaking_.emplace(*id, Handshake{.source = waiting.mapped().source,
                                        .turn = turn->first,
                                        .until = now + limits_.to_prove,
                                        .strange = !source.known});
    next.push_back(*id);
  }
  return next;
}

AcceptQueue::Handshake AcceptQueue::end_handshake(std::map<Id, Handshake>::iterator handshake) {
  Handshake ended = std::move(handshake->second);
  handshaking_.erase(handshake);
  if (ended.strange) --strange_handshaking_;
  --sources_[ended.turn].handshaking;
  return ended;
}

void AcceptQueue::proven(Id id) {
  const auto found = handshaking_.find(id);
  if (found == handshaking_.end()) return;
  const Handshake ended = end_handshake(found);
  if (known_.size() < kMostKnown) known_.insert(ended.source);
  const auto source = sources_.find(ended.source);
  if (source != sources_.end()) source->second.known = known_.contains(ended.source);
  forget_idle(ended.turn);
}

void AcceptQueue::failed(Id id, Millis now) {
  const auto found = handshaking_.find(id);
  if (found == handshaking_.end()) return;
  Source& source = sources_[end_handshake(found).turn];
  source.failures = {.count = failures_of(source, now) + 1, .counted_at = now};
  if (!source.known) strange_ = {.count = strange_failures(now) + 1, .counted_at = now};
}

std::vector<AcceptQueue::Id> AcceptQueue::take_expired(Millis now) {
  std::vector<Id> waited, late;
  for (const auto& [id, waiting] : waiting_)
    if (now >= waiting.since + (waiting.greeted ? limits_.to_begin : limits_.to_greet)) waited.push_back(id);
  for (const auto& [id, handshake] : handshaking_)
    if (now >= handshake.until) late.push_back(id);
  for (const Id id : waited) left(id);
  for (const Id id : late) failed(id, now);
  std::erase_if(sources_, [&](const auto& entry) {
    const Source& source = entry.second;
    return source.waiting == 0 && source.handshaking == 0 && failures_of(source, now) == 0;
  });
  return waited;
}

// Waiting connections are checked twice a second, so no list by deadline is needed.
Millis AcceptQueue::next_deadline(Millis now) const {
  constexpr Millis kLook = 500, kLookForTurns = 50;
  if (waiting_.empty() && handshaking_.empty() && sources_.empty()) return kNever;
  const bool turns =
      std::ranges::any_of(sources_, [](const auto& entry) { return !entry.second.ready.empty(); });
  return now + (turns ? kLookForTurns : kLook);
}

// A source with failures is remembered until they are forgiven.
void AcceptQueue::forget_idle(const std::string& name) {
  const auto found = sources_.find(name);
  const Source& source = found->second;
  if (source.waiting == 0 && source.handshaking == 0 && source.failures.count == 0) sources_.erase(found);
}

}  // namespace dtrun::rendezvous
