// The key-value store as a pure data structure: get with wait, add, compare-and-set, delete by key or prefix.
// A get that waits is answered through take_answers(); timers and RPCs belong to store_service.cc.
#pragma once

#include <algorithm>
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

  struct Sum {
    bool ok;  // false: the key holds something that is not a number
    std::int64_t value;
  };
  struct Swap {
    bool swapped;
    std::string value;  // what the key holds now; empty if it does not exist
  };

  std::optional<std::string> get(const std::string& key) const;

  // Answers `waiter` when the key comes into being, or at `deadline`. REQUIRES: the id is not in use.
  void wait(WaiterId waiter, const std::string& key, Millis deadline);
  void cancel(WaiterId waiter);

  void set(const std::string& key, std::string value);

  // Adds to a decimal number; an absent key counts as 0. Wraps around at the ends of int64.
  Sum add(const std::string& key, std::int64_t delta);

  // Sets the key if it holds `expected`; an empty `expected` means "absent or empty".
  Swap compare_and_set(const std::string& key, const std::string& expected, std::string value);

  // Keys deleted: 0 or 1, or however many start with the prefix.
  std::int64_t erase(const std::string& key, bool prefix);

  // The waiters that can be answered now. Call it after every change and at next_deadline().
  std::vector<Answer> take_answers(Millis now);
  Millis next_deadline() const { return by_deadline_.empty() ? kNever : by_deadline_.begin()->first; }

 private:
  struct Waiter {
    std::string key;
    Millis deadline;
  };
  void forget(WaiterId waiter);

  std::map<std::string, std::string> values_;
  std::map<WaiterId, Waiter> waiters_;
  std::map<std::string, std::set<WaiterId>> by_key_;
  std::set<std::pair<Millis, WaiterId>> by_deadline_;
  std::vector<Answer> ready_;
};

}  // namespace dtrun::rendezvous
