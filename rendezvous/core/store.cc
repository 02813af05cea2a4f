#include "rendezvous/core/store.h"

#include <charconv>
#include <system_error>

namespace dtrun::rendezvous {
namespace {

std::optional<std::int64_t> parse(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
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

void KeyValueStore::set(const std::string& key, std::string value) {
  const auto waiting = by_key_.find(key);
  if (waiting != by_key_.end()) {
    const std::set<WaiterId> waiters = waiting->second;
    for (WaiterId waiter : waiters) {
      ready_.push_back({.waiter = waiter, .value = value});
      forget(waiter);
    }
  }
  values_[key] = std::move(value);
}

KeyValueStore::Sum KeyValueStore::add(const std::string& key, std::int64_t delta) {
  const auto found = values_.find(key);
  const std::optional<std::int64_t> before = found == values_.end() ? 0 : parse(found->second);
  if (!before) return {.ok = false, .value = 0};
  const auto sum =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(*before) + static_cast<std::uint64_t>(delta));
  set(key, std::to_string(sum));
  return {.ok = true, .value = sum};
}

KeyValueStore::Swap KeyValueStore::compare_and_set(const std::string& key, const std::string& expected,
                                                   std::string value) {
  const std::string current = get(key).value_or("");
  if (current != expected) return {.swapped = false, .value = current};
  set(key, value);
  return {.swapped = true, .value = std::move(value)};
}

std::int64_t KeyValueStore::erase(const std::string& key, bool prefix) {
  if (!prefix) return static_cast<std::int64_t>(values_.erase(key));
  std::int64_t erased = 0;
  for (auto at = values_.lower_bound(key); at != values_.end() && at->first.starts_with(key); ++erased)
    at = values_.erase(at);
  return erased;
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
