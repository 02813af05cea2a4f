// One event's step of a launch: the state that it changes and the actions that it collects. launch.cc
// decides.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cmd/launch/core/launch.h"

namespace dtrun::cmd {

class LaunchStep {
 public:
  LaunchStep(LaunchState& state, Millis now) : s_(state), now_(now) {}

 protected:
  using HostMessage = std::pair<int, std::string>;  // a host, and a message on it

  HostState& host(int index) { return s_.hosts[static_cast<std::size_t>(index)]; }
  const std::string& name(int index) const { return s_.settings.hosts[static_cast<std::size_t>(index)]; }
  int count() const { return static_cast<int>(s_.hosts.size()); }
  bool is(Purpose purpose) const { return s_.settings.purpose == purpose; }
  std::vector<int> in_phase(std::initializer_list<HostPhase> phases) const { return hosts_in(s_, phases); }
  bool all_in(std::initializer_list<HostPhase> phases) const {
    return in_phase(phases).size() == s_.hosts.size();
  }

  void enter(int index, HostPhase phase) {
    host(index).phase = phase;
    host(index).since = now_;
  }
  template <typename Action>
  void emit(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void say(const std::string& text, bool error = false) {
    emit(launch_action::Say{.text = text, .error = error});
  }
  // A message that is the same for several hosts is shown once.
  void tell(const std::vector<HostMessage>& lines, bool error);
  void hang_up_all();
  void finish(int exit_code);

  LaunchState& s_;
  const Millis now_;
  std::vector<LaunchAction> actions_;
};

}  // namespace dtrun::cmd
