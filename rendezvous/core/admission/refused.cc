#include "rendezvous/core/admission/refused.h"

namespace dtrun::rendezvous {

bool Refused::failed(const std::string& address, Millis now) {
  if (known_.size() >= kMost && !known_.contains(address))
    std::erase_if(known_, [&](const auto& one) {
      return now - one.second.failed_at > kAtOnce && now >= one.second.silent_until;
    });
  if (known_.size() >= kMost && !known_.contains(address)) return false;
  const auto [at, first] = known_.try_emplace(address);
  Known& one = at->second;
  const bool twice = !first && now - one.failed_at <= kAtOnce;
  one.failed_at = now;
  if (!twice || now < one.silent_until || now < silent_until_) return false;
  one.silent_until = now + kSameAgain;
  silent_until_ = now + kAnyAgain;
  return true;
}

}  // namespace dtrun::rendezvous
