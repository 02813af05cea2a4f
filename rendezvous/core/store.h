// The key-value store as a pure data structure: set, get with wait, and the end of a run's keys. A get that
// waits is answered through take_answers(); timers and RPCs belong to store_service.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::rendezvous {

// Limits of the store: a key with its value, and everything. Runs keep addresses and ids here; data goes
// between their workers. So a worker that floods the store does not end the process that has the store.
struct StoreLimits {
  std::size_t item = std::size_t{1} << 20;  // bytes, as the next
  std::size_t total = std::size_t{32} << 20;
};

class KeyValueStore {
 public:
  using WaiterId = std::uint64_t;
  static constexpr Millis kNever = std::numeric_limits<Millis>::max();
  // A day: a longer wait is cut to it, which keeps deadlines far from the limits of their type.
  static constexpr Millis kLongestWait = 86'400'000;
  static Millis allowed_wait(Millis asked) { return std::clamp<Millis>(asked, 0, kLongestWait); }

  // A get that waited and is now answered: with the value, or with none because its time ran out.
  struct Answer {
    WaiterId waiter;
    std::optional<std::string> value;
  };

  using Limits = StoreLimits;
  // Counted for each key on top of its own length and its value's.
  static constexpr std::size_t kItemOverhead = 128;

  enum class Outcome { kDone, kItemTooLarge, kStoreFull };

  explicit KeyValueStore(const Limits& limits = {}) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // Bytes held, by the count of Limits.
  std::size_t size() const { return size_; }

  // True if the key is short enough to exist. A get of a longer one must be refused: a waiter holds its key.
  bool fits(const std::string& key) const { return key.size() + kItemOverhead <= limits_.item; }

  std::optional<std::string> get(const std::string& key) const;

  // Answers `waiter` when the key comes into being, or at `deadline`. REQUIRES: the id is not in use.
  void wait(WaiterId waiter, const std::string& key, Millis deadline);
  void cancel(WaiterId waiter);

  // A value that does not fit changes nothing.
  Outcome set(const std::string& key, std::string value);

  // How many keys began with it. REQUIRES: not empty, which would be everybody's keys.
  std::int64_t erase_all(const std::string& prefix);
  void clear();  // no key is left; waiters still wait

  // The waiters that can be answered now. Call it after every change and at next_deadline().
  std::vector<Answer> take_answers(Millis now);
  Millis next_deadline() const { return by_deadline_.empty() ? kNever : by_deadline_.begin()->first; }

 private:
  struct Waiter {
    std::string key;
    Millis deadline;
  };
  void forget(WaiterId waiter);

  const Limits limits_;
  std::map<std::string, std::string> values_;
  std::size_t size_ = 0;
  std::map<WaiterId, Waiter> waiters_;
  std::map<std::string, std::set<WaiterId>> by_key_;
  std::set<std::pair<Millis, WaiterId>> by_deadline_;
  std::vector<Answer> ready_;
};

}  // namespace dtrun::rendezvous
