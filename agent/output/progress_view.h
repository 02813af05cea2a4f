// Shows the progress that rank 0 reports, as --progress says, and tells Kubeflow if it asks for that.
#pragma once

#include "agent/core/job_spec.h"
#include "agent/output/console.h"
#include "agent/output/kubeflow_status.h"
#include "agent/output/progress_json.h"
#include "agent/system/loop.h"
#include "agent/text/progress_text.h"

namespace dtrun::agent {

class ProgressView {
 public:
  ProgressView(Console& console, ProgressMode mode) : console_(console), mode_(mode) {}

  void update(const Progress& progress);
  // No worker runs any more.
  void clear();
  // Workers start that will report progress of this place.
  void begin(const ProgressPlace& place);
  // The job is over.
  void end();

 private:
  void draw_bar(const Progress& progress, Loop::Clock::time_point now);
  void print_line(const Progress& progress, Loop::Clock::time_point now);
  void print_json(const Progress& progress);
  void tell_kubeflow(const Progress& progress);
  void tell_fault();

  Console& console_;
  const ProgressMode mode_;
  ProgressPlace place_;
  Pace pace_;
  std::optional<double> seconds_left_;
  Loop::Clock::time_point shown_{};
  std::int64_t shown_step_ = -1;
  std::string shown_json_;
  std::unique_ptr<KubeflowStatus> kubeflow_;  // none: not asked for, or no report of our rank 0 yet
};

}  // namespace dtrun::agent
