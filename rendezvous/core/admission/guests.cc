#include "rendezvous/core/admission/guests.h"

#include <algorithm>

namespace dtrun::rendezvous {

std::optional<GuestConnections::Id> GuestConnections::came(Id id, const std::string& guest) {
  std::set<Id>& own = of_[guest];
  own.insert(id);
  guest_of_[id] = guest;
  if (own.size() > GuestLimits::kConnections) return id;
  if (guest_of_.size() <= all_) return std::nullopt;
  const auto most = std::ranges::max_element(of_, {}, [](const auto& one) { return one.second.size(); });
  return own.size() == most->second.size() ? id : *most->second.rbegin();
}

void GuestConnections::went(Id id) {
  const auto found = guest_of_.find(id);
  if (found == guest_of_.end()) return;
  const auto of = of_.find(found->second);
  of->second.erase(id);
  if (of->second.empty()) of_.erase(of);
  guest_of_.erase(found);
}

std::vector<GuestConnections::Id> GuestConnections::of(const std::string& guest) const {
  const auto found = of_.find(guest);
  if (found == of_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

bool GuestCalls::take(const std::string& guest, Kind kind) {
  Guest& one = guests_[guest];
  std::size_t& count = kind == kMember ? one.members : one.waiters;
  if (count >= (kind == kMember ? GuestLimits::kMembers : GuestLimits::kWaiters)) return false;
  ++count;
  return true;
}

void GuestCalls::give_back(const std::string& guest, Kind kind) {
  Guest& one = guests_[guest];
  --(kind == kMember ? one.members : one.waiters);
}

bool GuestCalls::begins(const std::string& guest, Millis now) {
  forget_idle(now);
  Guest& one = guests_[guest];
  const double forgiven = static_cast<double>(now - one.counted_at) / 1000 * GuestLimits::kCallsPerSecond;
  one.calls = std::max(0.0, one.calls - forgiven);
  one.counted_at = now;
  if (one.calls + 1 > GuestLimits::kCalls || one.unarrived >= GuestLimits::kUnarrived) {
    one.unarrived = 0;
    return false;
  }
  ++one.calls;
  ++one.unarrived;
  return true;
}

// One that began before its guest's calls were ended may arrive after it.
void GuestCalls::arrived(const std::string& guest) {
  const auto found = guests_.find(guest);
  if (found != guests_.end() && found->second.unarrived > 0) --found->second.unarrived;
}

// Their names are as many as scoped tokens were given, over months.
void GuestCalls::forget_idle(Millis now) {
  constexpr Millis kSweep = 60'000;  // by then all is forgiven
  if (now - swept_at_ < kSweep) return;
  swept_at_ = now;
  std::erase_if(guests_, [&](const auto& one) {
    const Guest& guest = one.second;
    return guest.members + guest.waiters + guest.unarrived == 0 && now - guest.counted_at >= kSweep;
  });
}

}  // namespace dtrun::rendezvous
