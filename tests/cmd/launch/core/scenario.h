// A launch as a test tells it, event by event.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cmd/launch/core/launch.h"

namespace dtrun::cmd {

namespace event = launch_event;
namespace action = launch_action;

// A launch with a clock of its own, and its actions so far.
struct Scenario {
  explicit Scenario(std::vector<std::string> hosts, int min = 0, int max = 0, Purpose purpose = Purpose::kRun,
                    bool all_meet = true)
      : state(initial_launch({.hosts = hosts,
                              .min_nodes = min > 0 ? min : static_cast<int>(hosts.size()),
                              .max_nodes = max > 0 ? max : static_cast<int>(hosts.size()),
                              .purpose = purpose,
                              .all_meet = all_meet})) {}

  template <typename Event>
  void on(const Event& e) {
    for (LaunchAction& one : decide(state, e, now)) done.push_back(std::move(one));
  }
  template <typename Action>
  std::vector<Action> all() const {
    std::vector<Action> found;
    for (const LaunchAction& one : done)
      if (const auto* wanted = std::get_if<Action>(&one)) found.push_back(*wanted);
    return found;
  }
  std::string said() const {
    std::string text;
    for (const auto& one : all<action::Say>()) text += one.text + "\n";
    return text;
  }
  std::optional<int> exit_code() const {
    const auto finishes = all<action::Finish>();
    return finishes.empty() ? std::nullopt : std::optional(finishes.front().exit_code);
  }

  void answer(int host) { on(event::Answered{.host = host, .same_build = true}); }
  void plan(int host) {
    answer(host);
    on(event::Planned{
        .host = host, .addresses = {"10.0.0." + std::to_string(host), "192.168.0.1"}, .port = 20001});
  }
  HostState& at(int host) { return state.hosts[static_cast<std::size_t>(host)]; }
  // The first host is reached.
  void see(int host, const std::string& address = "10.0.0.0") {
    on(event::Seen{
        .host = host,
        .results = {{.address = address, .from = "10.1.0." + std::to_string(host), .why_not = {}}}});
  }
  // The host reaches all others but `missing`.
  void reach(int host, const std::vector<int>& missing = {}) {
    event::Seen seen{.host = host, .results = {}};
    for (const int other : at(host).tried) {
      const bool gap = std::ranges::count(missing, other) > 0;
      seen.results.push_back({.address = gap ? "" : at(other).from, .from = "", .why_not = {}});
      if (gap) seen.results.back().why_not = {at(other).from + ": no answer"};
    }
    on(seen);
  }
  // Every host is there, and knows its way to the first.
  void place_all() {
    on(event::Begin{});
    const int hosts = static_cast<int>(state.hosts.size());
    for (int i = 0; i < hosts; ++i) plan(i);
    for (int i = 1; i < hosts; ++i) see(i);
  }
  void reach_all() {
    for (int i = 0; i < static_cast<int>(state.hosts.size()); ++i)
      if (at(i).phase == HostPhase::kTrying) reach(i);
  }
  void lose(int host, SshFailure::FailureKind kind, const std::string& what = "broken",
            const std::string& remedy = "") {
    on(event::Gone{.host = host, .failure = {.kind = kind, .what = what, .remedy = remedy}});
  }
  void end(int host, int exit_code) { on(event::Ended{.host = host, .exit_code = exit_code}); }
  void begun(int host = 0) { on(event::Begun{host}); }
  void run_all() {
    place_all();
    reach_all();
    begun();
  }

  LaunchState state;
  Millis now = 1000;
  std::vector<LaunchAction> done;
};

}  // namespace dtrun::cmd
