// Shows the progress that rank 0 reports: a bar on a terminal, else a plain line now and then.
#pragma once

#include "agent/core/progress_text.h"
#include "agent/output/console.h"
#include "agent/system/loop.h"
#include "proto/control.pb.h"

namespace dtrun::agent {

class ProgressView {
 public:
  explicit ProgressView(Console& console) : console_(console) {}

  void update(const control::Progress& progress);
  // No worker runs any more.
  void clear();

 private:
  void draw_bar(const ProgressPoint& point, Loop::Clock::time_point now);
  void print_line(const ProgressPoint& point, Loop::Clock::time_point now);

  Console& console_;
  Pace pace_;
  Loop::Clock::time_point shown_{};
  std::int64_t shown_step_ = -1;
};

}  // namespace dtrun::agent
