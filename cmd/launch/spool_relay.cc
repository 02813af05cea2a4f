#include "cmd/launch/spool_relay.h"

#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "cmd/launch/spool.h"
#include "cmd/options/values.h"
#include "proto/base/framed_channel.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 50;
// To an agent two signals in 250 ms are one that came two ways (agent/core/supervisor/workers.cc).
constexpr std::chrono::milliseconds kBetweenSignals(400);

class Relay {
 public:
  Relay(const launch::Attach& attach, SpoolReader spool, int in, int out)
      : attach_(attach), spool_(std::move(spool)), in_(in), out_(out) {}

  void run() {
    const std::uint64_t before = attach_.from_now() ? spool_.size() : 0;
    while (!over_) {
      const bool lives = spool_.writer().has_value();  // before the last look at its output
      while (!over_) {
        const auto message = spool_.next();
        if (!message) break;
        if (spool_.position() > before || message->has_ended()) pass_on(*message);
      }
      if (!over_ && !std::exchange(up_to_date_, true)) say_up_to_date();
      if (!over_ && !attach_.follow()) end(kExitOk);
      if (!over_ && !lives) end_of_dead();
      if (!over_) listen();
    }
  }

 private:
  void pass_on(const launch::FromHost& message) {
    over_ = over_ || message.has_ended();
    send(message);
  }

  void say_up_to_date() {
    launch::FromHost message;
    message.mutable_up_to_date();
    send(message);
  }

  void end(int exit_code) {
    launch::FromHost message;
    message.mutable_ended()->set_exit_code(exit_code);
    pass_on(message);
  }

  void end_of_dead() {
    if (const auto ended = spool_.ended()) return pass_on(*ended);
    launch::FromHost message;
    message.mutable_said()->set_text(
        "the agent here ended without a word: it was killed, or the host was started again");
    send(message);
    end(kExitUnavailable);
  }

  void send(const launch::FromHost& message) { over_ = !write_all(out_, frame_of(message)) || over_; }

  // To the launcher, for a moment.
  void listen() {
    pollfd entry{in_, POLLIN, 0};
    if (poll(&entry, 1, kLookEveryMs) <= 0) {
      over_ = Clock::now() - heard_at_ >= kLauncherSilence;
      return;
    }
    const Portion portion = words_.read_from(in_);
    if (portion == Portion::kNoneYet) return;
    over_ = portion == Portion::kEnd;
    if (over_) return;
    heard_at_ = Clock::now();
    for (auto message = words_.next();; message = words_.next()) {
      over_ = !message.ok();
      if (over_ || !message.value()) return;
      take(*message.value());
    }
  }

  void take(const launch::ToHost& message) {
    launch::FromHost alive;
    alive.mutable_alive();
    if (message.has_alive()) send(alive);
    if (!message.has_signal()) return;
    std::this_thread::sleep_until(signalled_at_ + kBetweenSignals);
    signalled_at_ = Clock::now();
    // The reason of an agent that has ended is in the file.
    spool_.signal_writer(message.signal().number());
  }

  const launch::Attach& attach_;
  SpoolReader spool_;
  const int in_, out_;
  MessageReader<launch::ToHost> words_;
  Clock::time_point heard_at_ = Clock::now(), signalled_at_ = {};
  bool over_ = false, up_to_date_ = false;
};

}  // namespace

Status relay_spool(const launch::Attach& attach, int in, int out) {
  RETURN_IF_ERROR(check_run_id({.value = attach.run_id(), .source = "RUN"}));
  Result<SpoolReader> spool = SpoolReader::open(spool_place(attach.run_id(), attach.node()));
  if (!spool.ok())
    return Status(kExitNoInput, "no detached run " + attach.run_id() + " on " + host_name() + " (" +
                                    spool.status().message() + ")");
  Relay(attach, std::move(spool).value(), in, out).run();
  return {};
}

}  // namespace dtrun::cmd
