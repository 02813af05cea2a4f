// How a generation ends: what breaks it, the order to stop, and whether the job goes on.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/run/turn.h"

namespace dtrun::rendezvous {

class Stopping {
 public:
  explicit Stopping(Turn& turn) : turn_(turn), s_(turn.state()), now_(turn.now()) {}

  // A worker's failure, and the end of a member's workers. REQUIRES: the member's seat `rank` is open.
  void on_failure(int rank, const Failure& failure);
  void on_stopped(int rank, const Stopped& stopped);

  void break_generation(Cause cause, const std::string& why);
  // For something worse that happens while the members stop by themselves, or after a last step.
  void order_overdue_stop();
  StopOrder stop_order() const;
  // Ends the job if a person stopped a member and too few are left; false: the job goes on.
  bool ends_by_hand();
  void end_job(int exit_code, const std::string& reason, const WorkerOutcome* first,
               const std::optional<Hang>& hang = std::nullopt);

  // What is due in this turn: success, the order to stop, the end of a generation that has stopped.
  void advance();

 private:
  bool is_of(int rank, const WorkerOutcome& outcome) const;
  bool explained() const;
  bool ended_to_make_room(const Stopped& stopped) const;
  void order_stop();
  void conclude();
  bool workers_are_left() const;
  bool settling();
  void gather_again(Millis delay);
  void succeed();
  std::string why_lost(const WorkerOutcome& first) const;
  std::optional<Hang> hang_of(const WorkerOutcome& first);

  Turn& turn_;
  State& s_;
  const Millis now_;
};

}  // namespace dtrun::rendezvous
