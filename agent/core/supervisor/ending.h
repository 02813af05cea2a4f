// The node's next step once none of its workers runs, which is the next generation or the end, and the
// reasons to end: a signal, the job's end, a coordinator that is gone or refuses this node.
#pragma once

#include <string>

#include "agent/core/supervisor/generation.h"

namespace dtrun::agent {

class Ending : Part {
 public:
  Ending(Turn& turn, EndingState& own, Connection& connection, Generation& generation)
      : Part(turn), own_(own), connection_(connection), generation_(generation) {}

  void on(const event::Signal& e);
  void on(const event::Ended& e);
  void on(const event::Rejected& e);
  void on(const event::Disconnected& e);
  void on(const event::MembersLeft& e);
  void on(const event::Tick& e);
  // This node cannot take part in the run: the worker ended while it loaded, as others before it.
  void on_lost(const Worker& worker);

  // Goes on once no worker runs here.
  void settle();

 private:
  void again_told(int number);
  void announce_leave();
  int pass_on(int exit_code);
  void give_up(int exit_code, const std::string& message, bool of_node = false);
  void check_connection();
  void leave(int signal, int exit_code);
  void report_before(int signal, int exit_code);
  void conclude();
  void tell_success(const JobEnd& run);
  void check_members();
  void report(JobEnd job);
  void end(int exit_code);

  EndingState& own_;
  Connection& connection_;
  Generation& generation_;
};

}  // namespace dtrun::agent
