#include "agent/process/left_behind.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/core/left_behind.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

constexpr auto kMoment = 500ms;

}  // namespace

LeftBehind::LeftBehind(Loop& loop, std::string tag, pid_t worker, std::string name,
                       Loop::Clock::time_point deadline, Events events)
    : tag_(std::move(tag)),
      name_(std::move(name)),
      deadline_(deadline),
      events_(std::move(events)),
      found_(find_by_tag(tag_, worker)),
      timer_(loop) {
  timer_.set(std::min(begin_ + kMoment, deadline_), [this] { end_them(); });
}

std::string LeftBehind::text() const { return left_behind_text(commands_of(found_), name_); }

std::string LeftBehind::patience() const {
  return seconds_text(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - begin_).count());
}

void LeftBehind::done() {
  const std::function<void()> ended = events_.ended;
  ended();
}

// Processes known by their group alone are checked through their handles, as their numbers may be reused.
void LeftBehind::find() {
  std::vector<FoundProcess> now = find_by_tag(tag_);
  for (FoundProcess& one : found_) {
    const bool again = std::ranges::find(now, one.pid, &FoundProcess::pid) != now.end();
    if (!again && is_running(one)) now.push_back(std::move(one));
  }
  found_ = std::move(now);
}

void LeftBehind::look() {
  find();
  if (found_.empty()) done();
}

void LeftBehind::end_them() {
  find();
  if (found_.empty()) return done();
  events_.tell("ending " + text() + ", in at most " + patience() + "; " + name_ +
               " should wait for what has to finish");
  for (const FoundProcess& one : found_) {
    signal_found(one, SIGTERM);
    signal_found(one, SIGCONT);  // a stopped one must be continued to hear it
  }
  timer_.set(deadline_, [this] { too_late(); });
}

void LeftBehind::too_late() { kill("not ended after " + patience()); }

void LeftBehind::kill(const std::string& why) {
  find();
  if (!found_.empty()) events_.tell("killing " + text() + ": " + why);
  for (const FoundProcess& one : found_) signal_found(one, SIGKILL);
  look_until_none([this] { return kill_by_tag(tag_); }, 10);
  done();
}

}  // namespace dtrun::agent
