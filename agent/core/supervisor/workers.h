// The processes of this node's workers: they are started, get their places in a generation, are replaced and
// signalled. generation.h knows why.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/supervisor/turn.h"

namespace dtrun::agent {

class Workers : Part {
 public:
  Workers(Turn& turn, WorkersState& own) : Part(turn), own_(own) {}

  void on(const event::WaitStatus& e);
  void on(const event::GpusFree& e);

  // Null if it is of an earlier process.
  const Worker* find(int serial) const { return own(serial); }
  // The worker, its outcome completed; null as above.
  const Worker* ended(const event::WorkerExited& e);
  // It outlives generations, and so loads until it says that it is ready. One that is being stopped ends all
  // the same.
  void on(const event::WorkerOutlives& e);
  // It waits for a place: takes it at once if there is one for it. True if it left one for that.
  // REQUIRES: it is alive
  bool ready(const event::WorkerReady& e);
  // Ends what is left of units that lost a worker: nobody holds their state as a whole.
  void end_broken_units();
  // Tells a program's workers that wait for a place that there is none any more. Of those with a state the
  // furthest of this node save it, once no other one here may get further.
  void end_waiting();
  void end_rest();
  // Ends those that have loaded, or load, beside a state that is lost: theirs is older. True if there are
  // some.
  bool end_outdated();
  // Asks for its GPU's part in its end, unless that is known or asked.
  void ask_gpu(const Worker& worker);
  // The worker whose GPU was asked for; null if nothing was.
  const Worker* gpu_found(const event::GpuFound& e);

  // Chooses the workers that take part in a generation that begins. Returns the processes that it lacks,
  // which have to be started.
  std::vector<action::Spawn> choose(const rendezvous::Node& node);
  // True if these processes have to wait until the GPUs are free of those that ended.
  bool hold(const std::vector<action::Spawn>& spawn);
  // Gives workers that wait their places. Returns the number of those with a trained state.
  int place_ready();

  // In-memory recovery: workers load before a generation begins, so that it can have all of this node. Those
  // of a program that is not known to outlive generations are started in one.
  void warm_up();
  // A worker ended before it took part in the run: that is no failure of the run at first, and another one is
  // started. False if too many of them ended so. One that ended with its unit does not count.
  bool replace(const Worker& worker);
  // Tells the coordinator that the next generation can have all of them, if it can and this one does not.
  void tell_ready();

  // Signals all that run, or only the one with this serial.
  void signal(int number, std::optional<int> only = {});
  // Workers whose process was never started, and which a signal has ended.
  std::vector<event::WorkerExited> take_unstarted() { return std::exchange(unstarted_, {}); }

 private:
  Worker* own(int serial) const;
  std::vector<action::Spawn> spawn_missing();
  action::Spawn spawn_of(const Worker& worker) const;
  void place(Worker& worker);

  WorkersState& own_;
  std::vector<event::WorkerExited> unstarted_;
};

// "a worker of this node ended with exit code 1 before it took part in the run"
std::string ended_early_text(const WorkerOutcome& outcome);

}  // namespace dtrun::agent
