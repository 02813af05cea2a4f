// Orders the messages that several hosts have kept of a job by time, each host's messages in its own order,
// since the hosts' clocks differ a little. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace dtrun::cmd {

template <typename Item>
class TimeOrder {
 public:
  explicit TimeOrder(std::size_t hosts) : hosts_(hosts), behind_(hosts) {}

  // In the host's order. `time` in seconds; nothing: as the one before it. `bytes`: that it holds.
  void add(std::size_t host, std::optional<double> time, std::size_t bytes, Item item) {
    HostItems& from = hosts_[host];
    from.last = std::max(from.last, time.value_or(from.last));
    from.waiting += bytes;
    from.items.push_back({from.last, bytes, std::move(item)});
    if (from.items.size() == 1) enter(host);
  }

  // The host has sent all messages from before the request, and later ones are new; or it sends no more.
  void is_up_to_date(std::size_t host) {
    if (std::exchange(hosts_[host].up_to_date, true)) return;
    if (hosts_[host].items.empty()) --behind_;
  }

  // The earliest, once no host can have an earlier one.
  std::optional<Item> next() {
    if (behind_ > 0 || fronts_.empty()) return std::nullopt;
    const std::size_t host = fronts_.begin()->second;
    fronts_.erase(fronts_.begin());
    HostItems& from = hosts_[host];
    TimedItem entry = std::move(from.items.front());
    from.items.pop_front();
    from.waiting -= entry.bytes;
    if (!from.items.empty())
      fronts_.emplace(from.items.front().time, host);
    else if (!from.up_to_date)
      ++behind_;
    return std::move(entry.item);
  }

  // Bytes of the host's items that next() has not returned yet.
  std::size_t waiting(std::size_t host) const { return hosts_[host].waiting; }

 private:
  struct TimedItem {
    double time;
    std::size_t bytes;
    Item item;
  };
  struct HostItems {
    std::deque<TimedItem> items = {};
    double last = 0;
    std::size_t waiting = 0;
    bool up_to_date = false;
  };

  void enter(std::size_t host) {
    fronts_.emplace(hosts_[host].items.front().time, host);
    if (!hosts_[host].up_to_date) --behind_;
  }

  std::vector<HostItems> hosts_;
  std::set<std::pair<double, std::size_t>> fronts_;  // (time, host) of each one's first item
  std::size_t behind_;  // hosts that are not up to date and have no item: theirs may be the earliest
};

}  // namespace dtrun::cmd
