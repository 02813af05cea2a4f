#include "rendezvous/core/store.h"

namespace dtrun::rendezvous {
namespace {

std::size_t size_of(const std::string& key, const std::string& value) {
  return key.size() + value.size() + KeyValueStore::kItemOverhead;
}

}  // namespace

std::optional<std::string> KeyValueStore::get(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

void KeyValueStore::wait(WaiterId waiter, const std::string& key, Millis deadline) {
  if (auto value = get(key)) {
    ready_.push_back({.waiter = waiter, .value = std::move(value)});
    return;
  }
  waiters_[waiter] = {.key = key, .deadline = deadline};
  by_key_[key].insert(waiter);
  by_deadline_.emplace(deadline, waiter);
}

void KeyValueStore::cancel(WaiterId waiter) {
  forget(waiter);
  std::erase_if(ready_, [&](const Answer& answer) { return answer.waiter == waiter; });
}

void KeyValueStore::forget(WaiterId waiter) {
  const auto found = waiters_.find(waiter);
  if (found == waiters_.end()) return;
  by_deadline_.erase({found->second.deadline, waiter});
  const auto key = by_key_.find(found->second.key);
  key->second.erase(waiter);
  if (key->second.empty()) by_key_.erase(key);
  waiters_.erase(found);
}

KeyValueStore::Outcome KeyValueStore::set(const std::string& key, std::string value) {
  const auto old = values_.find(key);
  const std::size_t before = old == values_.end() ? 0 : size_of(key, old->second);
  const std::size_t after = size_of(key, value);
  if (after > limits_.item) return Outcome::kItemTooLarge;
  if (size_ - before + after > limits_.total) return Outcome::kStoreFull;
  size_ = size_ - before + after;

  const auto waiting = by_key_.find(key);
  if (waiting != by_key_.end()) {
    const std::set<WaiterId> waiters = waiting->second;
    for (WaiterId waiter : waiters) {
      ready_.push_back({.waiter = waiter, .value = value});
      forget(waiter);
    }
  }
  values_[key] = std::move(value);
  return Outcome::kDone;
}

std::int64_t KeyValueStore::erase_all(const std::string& prefix) {
  std::int64_t erased = 0;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);
       ++erased) {
    size_ -= size_of(at->first, at->second);
    at = values_.erase(at);
  }
  return erased;
}

void KeyValueStore::clear() {
  values_.clear();
  size_ = 0;
}

std::vector<KeyValueStore::Answer> KeyValueStore::take_answers(Millis now) {
  while (next_deadline() <= now && !by_deadline_.empty()) {
    const WaiterId waiter = by_deadline_.begin()->second;
    ready_.push_back({.waiter = waiter, .value = std::nullopt});
    forget(waiter);
  }
  return std::exchange(ready_, {});
}

}  // namespace dtrun::rendezvous
