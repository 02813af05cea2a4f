#include "agent/output/progress_view.h"

#include <cstdlib>

#include "proto/base/clock.h"

namespace dtrun::agent {

using namespace std::chrono_literals;

void ProgressView::update(const Progress& progress) {
  if (progress.total_steps <= 0) return;
  const auto now = Loop::Clock::now();
  seconds_left_ = pace_.seconds_left(progress.step, progress.total_steps,
                                     std::chrono::duration<double>(now.time_since_epoch()).count());
  tell_kubeflow(progress);
  if (mode_ == ProgressMode::kNone) return;
  if (mode_ == ProgressMode::kJson) {
    print_json(progress);
  } else if (console_.has_terminal() && mode_ != ProgressMode::kPlain) {
    draw_bar(progress, now);
  } else {
    print_line(progress, now);
  }
}

void ProgressView::draw_bar(const Progress& progress, Loop::Clock::time_point now) {
  if (now - shown_ < 100ms) return;
  shown_ = now;
  console_.set_bar(progress_bar(progress, seconds_left_, console_.columns()));
}

void ProgressView::print_line(const Progress& progress, Loop::Clock::time_point now) {
  if (now - shown_ < 5s || progress.step == shown_step_ || progress.step == 0) return;
  shown_ = now;
  shown_step_ = progress.step;
  console_.tell_job(progress_line(progress, seconds_left_));
}

// As often as the trainer reports something new.
void ProgressView::print_json(const Progress& progress) {
  std::string news = progress_json(progress, {}, place_, 0);
  if (news == shown_json_) return;
  shown_json_ = std::move(news);
  console_.write(Console::Stream::kOut,
                 progress_json(progress, seconds_left_, place_, wall_seconds()) + "\n");
}

void ProgressView::tell_kubeflow(const Progress& progress) {
  if (!kubeflow_) {
    const std::optional<KubeflowServer> server = KubeflowServer::of(std::getenv);
    if (!server) return;
    kubeflow_ = std::make_unique<KubeflowStatus>(*server);
  }
  tell_fault();
  kubeflow_->update(progress, seconds_left_);
}

void ProgressView::tell_fault() {
  if (const std::string fault = kubeflow_->take_fault(); !fault.empty())
    console_.notice("Kubeflow does not take the job's progress, and the job goes on: " + fault);
}

void ProgressView::clear() {
  console_.set_bar("");
  pace_ = Pace();
}

void ProgressView::begin(const ProgressPlace& place) {
  clear();
  place_ = place;
}

void ProgressView::end() {
  if (!kubeflow_) return;
  kubeflow_->finish();
  tell_fault();
}

}  // namespace dtrun::agent
