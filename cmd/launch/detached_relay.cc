#include "cmd/launch/detached_relay.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cmd/launch/detached_files.h"
#include "cmd/options/values.h"
#include "proto/base/framed_channel.h"
#include "proto/base/ids.h"

namespace dtrun::cmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 50;
constexpr std::uint64_t kMostUnshown = 1u << 20;  // bytes
// To an agent two signals in 250 ms are one that came two ways (agent/core/supervisor/workers.cc).
constexpr std::chrono::milliseconds kBetweenSignals(400);

// dtrun's own words begin so; their further lines are indented.
constexpr std::string_view kOwn = "dtrun: ";

// Bytes of the text's first words of one kind: dtrun's own, or all that is not.
std::size_t first_of(std::string_view text) {
  const bool own = text.starts_with(kOwn);
  for (std::size_t end = text.find('\n'); end < text.size() - 1; end = text.find('\n', end + 1)) {
    const std::string_view rest = text.substr(end + 1);
    if (own ? !rest.starts_with(' ') : rest.starts_with(kOwn)) return end + 1;
  }
  return text.size();
}

class Relay {
 public:
  Relay(const launch::Attach& attach, DetachedReader files, int in, int out,
        std::chrono::milliseconds silence)
      : attach_(attach), files_(std::move(files)), in_(in), out_(out), silence_(silence) {}

  void run() {
    if (attach_.from_now()) files_.skip();
    while (!over_) {
      if (unshown_ > kMostUnshown) {
        listen(kLookEveryMs);
        continue;
      }
      const bool lives = files_.writer().has_value();  // before the last look at its output
      const std::string bytes = files_.next();
      const bool is_all = bytes.size() < DetachedReader::kPortion;
      const bool is_last = is_all && !(lives && attach_.follow());
      held_ += bytes;
      std::size_t whole = held_.rfind('\n') + 1;  // the rest of a line has time until the next look
      const bool is_long = whole == 0 && held_.size() > DetachedReader::kPortion;
      if (is_last || is_long || bytes.empty()) whole = held_.size();
      pass_on(whole);
      if (over_) return;
      if (is_last) return lives ? end(kExitOk) : end_of_dead();
      listen(is_all ? kLookEveryMs : 0);
    }
  }

 private:
  void pass_on(std::size_t size) {
    for (std::string_view text(held_.data(), size); !text.empty();) {
      std::string_view first = text.substr(0, first_of(text));
      text.remove_prefix(first.size());
      launch::FromHost message;
      if (!first.starts_with(kOwn)) {
        message.mutable_output()->set_text(std::string(first));
        send(message);
        unshown_ += first.size();
        continue;
      }
      first.remove_prefix(kOwn.size());
      if (first.ends_with('\n')) first.remove_suffix(1);
      say(std::string(first), true);
    }
    held_.erase(0, size);
  }

  void say(const std::string& text, bool of_job) {
    launch::FromHost message;
    message.mutable_said()->set_text(text);
    message.mutable_said()->set_of_job(of_job);
    send(message);
  }

  void end(int exit_code) {
    launch::FromHost message;
    message.mutable_ended()->set_exit_code(exit_code);
    send(message);
  }

  void end_of_dead() {
    const std::optional<DetachedReader::End> found = files_.end();
    if (!found)
      say("the agent here ended without a word: it was killed, or the host was started again", false);
    else if (found->is_cut)
      say("the disk was full: there was no room for all of the output", false);
    end(found ? found->exit_code : kExitUnavailable);
  }

  void send(const launch::FromHost& message) { over_ = !write_all(out_, frame_of(message)) || over_; }

  // To the launcher, for so long.
  void listen(int ms) {
    pollfd entry{in_, POLLIN, 0};
    if (poll(&entry, 1, ms) <= 0) {
      over_ = Clock::now() - heard_at_ >= silence_;
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
    if (message.has_shown()) unshown_ -= std::min<std::uint64_t>(unshown_, message.shown().bytes());
    if (!message.has_signal()) return;
    std::this_thread::sleep_until(signalled_at_ + kBetweenSignals);
    signalled_at_ = Clock::now();
    files_.signal_writer(message.signal().number());
  }

  const launch::Attach& attach_;
  DetachedReader files_;
  const int in_, out_;
  const std::chrono::milliseconds silence_;
  std::string held_;           // of the output: not passed on yet
  std::uint64_t unshown_ = 0;  // bytes that were, and that the launcher's reader has not taken
  MessageReader<launch::ToHost> words_;
  Clock::time_point heard_at_ = Clock::now(), signalled_at_ = {};
  bool over_ = false;
};

}  // namespace

Status relay_detached(const launch::Attach& attach, int in, int out, const Times& times) {
  RETURN_IF_ERROR(check_run_id({.value = attach.run_id(), .source = "RUN"}));
  Result<DetachedReader> files = DetachedReader::open(detached_folder(attach.run_id(), attach.node()));
  if (!files.ok())
    return Status(kExitNoInput, "no detached run " + attach.run_id() + " on " + host_name() + " (" +
                                    files.status().message() + ")");
  Relay(attach, std::move(files).value(), in, out, times.launcher_silence).run();
  return {};
}

}  // namespace dtrun::cmd
