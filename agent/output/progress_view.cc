#include "agent/output/progress_view.h"

#include <cstdlib>

#include "agent/system/wall_clock.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

ProgressPoint to_point(const control::Progress& progress) {
  ProgressPoint point;
  point.phase = static_cast<ProgressPoint::Phase>(progress.phase());
  point.step = progress.step();
  point.total_steps = progress.total_steps();
  point.epoch = progress.epoch();
  point.learning_rate = progress.learning_rate();
  if (progress.has_loss()) point.loss = progress.loss();
  point.samples_per_second = progress.samples_per_second();
  point.accuracy = progress.accuracy();
  return point;
}

}  // namespace

void ProgressView::update(const control::Progress& progress) {
  if (progress.total_steps() <= 0) return;
  const auto now = Loop::Clock::now();
  ProgressPoint point = to_point(progress);
  point.seconds_left = pace_.seconds_left(point.step, point.total_steps,
                                          std::chrono::duration<double>(now.time_since_epoch()).count());
  tell_kubeflow(point);
  if (mode_ == ProgressMode::kNone) return;
  if (mode_ == ProgressMode::kJson) {
    print_json(point);
  } else if (console_.has_terminal() && mode_ != ProgressMode::kPlain) {
    draw_bar(point, now);
  } else {
    print_line(point, now);
  }
}

void ProgressView::draw_bar(const ProgressPoint& point, Loop::Clock::time_point now) {
  if (now - shown_ < 100ms) return;
  shown_ = now;
  console_.set_bar(progress_bar(point, console_.columns()));
}

void ProgressView::print_line(const ProgressPoint& point, Loop::Clock::time_point now) {
  if (now - shown_ < 5s || point.step == shown_step_ || point.step == 0) return;
  shown_ = now;
  shown_step_ = point.step;
  console_.tell_job(progress_line(point));
}

// As often as the trainer reports something new.
void ProgressView::print_json(const ProgressPoint& point) {
  ProgressPoint facts = point;
  facts.seconds_left.reset();
  std::string news = progress_json(facts, place_, 0);
  if (news == shown_json_) return;
  shown_json_ = std::move(news);
  console_.write(Console::Stream::kOut, progress_json(point, place_, wall_seconds()) + "\n");
}

void ProgressView::tell_kubeflow(const ProgressPoint& point) {
  if (!kubeflow_) {
    const std::optional<KubeflowServer> server = KubeflowServer::of(std::getenv);
    if (!server) return;
    kubeflow_ = std::make_unique<KubeflowStatus>(*server);
  }
  tell_fault();
  kubeflow_->update(point);
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
