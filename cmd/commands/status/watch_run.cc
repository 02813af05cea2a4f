#include "cmd/commands/status/watch_run.h"

#include <unistd.h>

#include <chrono>
#include <optional>

#include "cmd/commands/answer.h"
#include "cmd/commands/status/end_of_watch.h"
#include "cmd/commands/status/status_view.h"
#include "proto/base/clock.h"
#include "rendezvous/client/status_client.h"
#include "rendezvous/text/names.h"
#include "rendezvous/text/status_text.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;
using rendezvous::v1::RunStatus;

constexpr auto kAnswerTimeout = 5s, kEvery = 1s;
constexpr auto kUntilEvery = 50ms;  // a phase may be short
// A coordinator that no longer answers may have sent a last message that has not arrived yet.
constexpr auto kLastWord = 500ms;

class Watcher {
 public:
  explicit Watcher(const WatchedRun& watched)
      : watched_(watched),
        view_(watched.json, !watched.until && isatty(STDOUT_FILENO) != 0),
        watch_({.run_id = watched.run_id,
                .where = watched.where,
                .exit_status = watched.exit_status,
                .until = watched.until ? rendezvous::kPhaseNames[*watched.until] : "",
                .until_gone = watched.until_gone}) {}

  int run() {
    for (;;) {
      const Observation look = look_once();
      if (watched_.until && run_ && run_->phase() == *watched_.until) return show(look);
      if (const auto end = watch_.see(look, std::chrono::steady_clock::now())) return fail(*end);
      if (const int code = watched_.until ? kExitOk : show(look); code != kExitOk) return code;
      if (look.found == Observation::Finding::kRun && end_->broken()) listen();
      (void)end_->wait_for(watched_.until ? kUntilEvery : kEvery);
    }
  }

 private:
  // Called before the first look, so that an end between the two is not missed.
  void listen() {
    end_.emplace(watched_.endpoint.host, watched_.endpoint.port, watched_.run_id, watched_.key);
  }

  Observation look_once() {
    if (!end_) listen();
    run_ = end_->wait_for(0ms);
    Observation look;
    if (!run_) look = ask();
    if (!run_ && !end_->broken()) run_ = end_->wait_for(kLastWord);
    if (run_)
      look = {run_->phase() == RunStatus::OVER ? Observation::Finding::kOver : Observation::Finding::kRun,
              run_->exit_code(), ""};
    if (look.found == Observation::Finding::kOver && !watched_.until) (void)show(look);
    return look;
  }

  Observation ask() {
    const auto reply = rendezvous::fetch_status(watched_.endpoint.host, watched_.endpoint.port,
                                                watched_.run_id, kAnswerTimeout, watched_.key);
    if (reply.ok() && reply.value().runs_size() > 0) {
      run_ = reply.value().runs(0);
      seen_at_ = wall_seconds();
    } else {
      run_ = watched_.left_word(seen_at_);
    }
    if (!reply.ok())
      return {Observation::Finding::kNoAnswer, reply.status().exit_code(), reply.status().message()};
    return {Observation::Finding::kNoSuchRun, 0, ""};
  }

  // A missing run is reported once, and again only after it was back.
  int show(const Observation& look) {
    if (run_) {
      missing_ = false;
      return view_.show(rendezvous::status_text(*run_, watched_.where, palette_of_answers()),
                        rendezvous::json_line(rendezvous::status_json(*run_, watched_.where)));
    }
    if (std::exchange(missing_, true)) return kExitOk;
    const std::string what = look.found == Observation::Finding::kNoAnswer
                                 ? look.why
                                 : "no run " + watched_.run_id + " at " + watched_.where;
    return view_.show(Status(kExitUnavailable, what + "; waiting for it to be back"));
  }

  const WatchedRun& watched_;
  StatusView view_;
  EndOfWatch watch_;
  std::optional<rendezvous::EndOfRun> end_;
  std::optional<RunStatus> run_;  // as the newest look found it
  double seen_at_ = 0;            // when the coordinator last knew it, in seconds since 1970
  bool missing_ = false;
};

}  // namespace

int watch_run(const WatchedRun& watched) { return Watcher(watched).run(); }

}  // namespace dtrun::cmd
