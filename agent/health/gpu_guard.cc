#include "agent/health/gpu_guard.h"

#include <utility>

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstAnswer = 60s;  // a driver that is not in persistence mode starts every GPU anew
constexpr auto kAnswer = 1s;        // nothing must wait longer for a broken driver
constexpr auto kEvery = 5s;         // as heartbeats tell of
constexpr auto kAgain = 20ms;       // until the next look at a GPU that is not free

}  // namespace

GpuGuard::GpuGuard(Loop& loop, std::vector<std::string> command, std::vector<std::string> environment,
                   const std::filesystem::path& kernel_log, std::function<void(pid_t)> started)
    : watches_(!command.empty()),
      observer_(loop, std::move(command), std::move(environment), std::move(started)),
      xids_(watches_ ? kernel_log : std::filesystem::path()),
      timer_(loop) {}

void GpuGuard::begin() {
  if (!watches_) return;
  observer_.ask(kFirstAnswer, [this](std::optional<GpuReading> reading) {
    if (reading) before_ = newest_ = *std::move(reading);
  });
  asked_at_ = Loop::Clock::now();
}

// Without an answer the old numbers are not told any more.
const GpuReading& GpuGuard::look_now_and_then(Loop::Clock::time_point now) {
  if (!watches_ || before_.gpus.empty() || now - asked_at_ < kEvery) return newest_;
  asked_at_ = now;
  observer_.ask(kAnswer, [this](std::optional<GpuReading> reading) {
    newest_ = reading ? *std::move(reading) : GpuReading();
  });
  return newest_;
}

void GpuGuard::explain(const std::string& pci, std::function<void(std::string)> done) {
  std::string known = watches_ ? gpu_trouble(xids_.read(), before_, std::nullopt, pci) : "";
  if (!watches_ || before_.gpus.empty() || !known.empty()) return done(std::move(known));
  observer_.ask(kAnswer, [this, pci, done = std::move(done)](const std::optional<GpuReading>& reading) {
    done(gpu_trouble(xids_.read(), before_, reading, pci));  // the log may have the error by now
  });
}

void GpuGuard::ended(pid_t pid) {
  if (watches_ && pid > 0) release_.ended(pid, millis_now());
}

void GpuGuard::when_free(std::function<void(const std::string&)> start) {
  if (!watches_ || !release_.waits()) return start("");
  start_ = std::move(start);
  if (!looking_) look();
}

void GpuGuard::look() {
  looking_ = true;
  observer_.ask(kAnswer, [this](const std::optional<GpuReading>& reading) { looked(reading); });
}

void GpuGuard::looked(const std::optional<GpuReading>& reading) {
  looking_ = false;
  const GpuRelease::Decision decision = release_.look(reading, millis_now());
  if (decision.start) {
    if (auto start = std::exchange(start_, nullptr)) start(decision.note);
    return;
  }
  if (start_ == nullptr) return;
  looking_ = true;
  timer_.set(Loop::Clock::now() + kAgain, [this] { look(); });
}

void GpuGuard::rest() {
  timer_.cancel();
  start_ = nullptr;
  observer_.stop();
}

}  // namespace dtrun::agent
