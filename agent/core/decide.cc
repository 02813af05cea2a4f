#include "agent/core/decide.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/report.h"
#include "proto/core/exit_codes.h"

namespace dtrun::agent {
namespace {

constexpr Millis kNoticeEvery = 5000;
// A broken collective is rarely the cause: its peer's death, or the order to stop, is on its way.
constexpr Millis kCauseWait = 3000;
// timeout(1) and some supervisors deliver one signal twice; people do not press a key this fast.
constexpr Millis kSameSignal = 250;
constexpr Millis kMembersNotice = 2000;
constexpr Millis kMembersDeadline = 15000;
// What `dtrun status --watch` shows need not be newer.
constexpr Millis kProgressEvery = 1000;
// A lost coordinator that is back this soon is not worth a line on the terminal.
constexpr Millis kBlip = 1000;

// Workers that end this soon after they were told to need no explanation why nothing happens.
constexpr Millis kSwift = 3000;

constexpr Millis kWithoutCoordinator = 30000;

// This node's part of the generation is done: all its workers ended with 0, of themselves.
bool succeeded(const State& s) {
  const Group& group = s.group;
  return group.assignment.generation > 0 && group.closed && !group.stopping &&
         std::all_of(group.outcomes.begin(), group.outcomes.end(),
                     [](const auto& outcome) { return outcome && outcome->ok(); });
}

// Its part was the whole: how the job ended is known here, whatever has become of the coordinator.
bool job_succeeded(const State& s) { return succeeded(s) && s.group.assignment.node_count == 1; }

// When a coordinator that is not there is no longer waited for.
Millis link_deadline_of(const State& s) {
  if (!s.link.ever_connected) return s.started_at + s.settings.join_timeout;
  if (job_succeeded(s)) return s.link.lost_at + kBlip;
  const Millis by_default =
      s.link.separate ? std::max(kWithoutCoordinator, s.settings.join_timeout) : kWithoutCoordinator;
  return s.link.lost_at + s.settings.read_timeout.value_or(by_default);
}

std::string seconds(Millis ms) { return std::to_string(std::max<Millis>(0, (ms + 999) / 1000)) + " s"; }

std::string count(int n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

class Step {
 public:
  Step(State& state, Millis now) : s(state), now_(now) {}

  std::vector<Action> take() { return std::move(out_); }

  void on(const event::Opened&) {
    if (ending()) return;
    emit(action::SendJoin{s.group.assignment, generation() > 0 ? now_ - s.group.started_at : 0});
  }

  void on(const event::Connected&) {
    s.link.connected = s.link.ever_connected = true;
    s.link.tell_at.reset();
  }

  void on(const event::Disconnected& e) {
    if (s.link.connected) {
      s.link.connected = false;
      s.link.lost_at = now_;
      s.link.heartbeat_at.reset();
      s.link.tell_at = now_ + kBlip;
    }
    s.link.why_lost = e.why;
    if (!s.notice_at) s.notice_at = now_ + kNoticeEvery;
    if (e.permanent && !ending() && !job_succeeded(s)) give_up(kExitUnavailable, e.why);
  }

  void on(const event::Welcome& e) {
    s.link.address = e.address;
    s.link.heartbeat_interval = std::max<Millis>(1, e.heartbeat_interval);
    s.link.heartbeat_at = now_ + s.link.heartbeat_interval;
    s.link.separate = e.separate;
    if (ending()) return;
    if (std::exchange(s.link.told, false)) {
      print(e.resumed ? "connected to the coordinator again; the workers were not interrupted"
                      : "connected to the coordinator again");
    }
    if (e.resumed) return say_again();
    if (workers_run()) stop_workers("the connection to the coordinator was lost for too long");
  }

  void on(const event::Waiting& e) {
    if (ending()) return;
    if (e.restart_in > 0) {
      if (s.told_restart != e.reason) print(e.reason + " in " + seconds(e.restart_in));
      s.told_restart = e.reason;
      s.waiting = e;
      s.notice_at.reset();
      return;
    }
    const bool news = !s.waiting || s.waiting->joined != e.joined || s.waiting->spare != e.spare;
    s.waiting = e;
    if (!s.waiting_since) s.waiting_since = now_;
    if (news && e.max_nodes > 1) notice();
  }

  void on(const event::Assigned& e) {
    if (ending() || e.assignment.generation <= generation()) return;
    s.next = e.assignment;
    s.waiting.reset();
    s.waiting_since.reset();
    s.notice_at.reset();
    if (workers_run()) stop_workers("a new generation begins");
    settle();
  }

  void on(const event::StopOrder& e) {
    if (e.generation != generation()) return;
    if (workers_run()) stop_workers(e.reason);
    settle();
  }

  void on(const event::Ended& e) {
    if (s.ended || s.job_end) return;
    s.job_end = e.job;
    if (workers_run()) stop_workers(e.job.reason);
    settle();
  }

  void on(const event::Rejected& e) {
    if (ending()) return;
    const bool did_its_part = s.group.closed && generation() > 0 && all_ok();
    if (e.job_over && did_its_part) {
      give_up(kExitOk, "the job ended while this node was disconnected; its own workers all ended with 0");
    } else {
      give_up(e.exit_code, e.message);
    }
  }

  void on(const event::WorkerExited& e) {
    if (e.generation != generation()) return;
    WorkerOutcome outcome = complete(e.outcome, e.never_ran);
    s.group.outcomes[static_cast<std::size_t>(outcome.local_rank)] = outcome;
    if (!outcome.ok()) failed(outcome);
    settle();
  }

  void on(const event::WorkerBroken& e) {
    if (e.generation != generation() || s.group.broken_at) return;
    if (s.told_signal != 0) {
      abort_workers("a peer is gone");
    } else if (!s.group.stopping) {
      s.group.broken_at = now_ + kCauseWait;
      WorkerOutcome outcome;
      outcome.local_rank = e.local_rank;
      outcome.exit_code = kExitWorkerPeerLost;
      outcome.error = e.error;
      s.group.broken = complete(outcome, false);
    }
  }

  void on(const event::WorkerCompleted& e) { s.completion = e.completion; }

  void on(const event::Progressed& e) {
    if (!s.link.heartbeat_at || ending()) return;
    if (e.first || now_ - s.link.heartbeat_sent_at >= kProgressEvery) heartbeat();
  }

  void on(const event::Signal& e) {
    if (s.ended) return;
    if (s.job_end && !workers_run()) return end(s.job_end->exit_code);
    if (s.told_signal != 0) return again_told();
    s.told_signal = e.number;
    s.told_at = now_;
    if (workers_run()) {
      const Millis grace = s.group.kill_at ? *s.group.kill_at - now_ : s.settings.shutdown_timeout;
      tell_why_stopping();
      print("stopping " + count(running(), "worker") + " after " + describe_signal(e.number) + " (at most " +
            seconds(grace) + "; a second signal stops at once)");
      // dtrun-worker takes SIGTERM as "finish the step, checkpoint, end"; other programs get what we got.
      signal_workers(s.settings.builtin ? SIGTERM : e.number);
      begin_grace();
    }
    settle();
  }

  void on(const event::MembersLeft&) {
    if (s.job_end && !s.ended) end(s.job_end->exit_code);
  }

  void on(const event::Tick&) {
    if (s.ended) return;
    if (due(s.link.heartbeat_at)) heartbeat();
    if (due(s.link.tell_at)) tell_lost();
    if (due(s.group.notice_at)) tell_why_stopping();
    if (due(s.group.kill_at)) kill_workers();
    if (due(s.group.broken_at)) cause_unknown();
    if (due(s.notice_at)) notice();
    check_link();
    check_members();
  }

 private:
  std::int64_t generation() const { return s.group.assignment.generation; }
  bool ending() const { return s.ended || s.told_signal != 0 || s.give_up || s.job_end; }
  bool due(const std::optional<Millis>& at) const { return at && *at <= now_; }

  int running() const {
    return static_cast<int>(std::count(s.group.outcomes.begin(), s.group.outcomes.end(), std::nullopt));
  }
  bool workers_run() const { return running() > 0; }

  bool all_ok() const {
    return std::all_of(s.group.outcomes.begin(), s.group.outcomes.end(),
                       [](const auto& outcome) { return outcome && outcome->ok(); });
  }

  template <typename A>
  void emit(A action) {
    out_.push_back(std::move(action));
  }
  void print(std::string text) { emit(action::Print{std::move(text)}); }

  void heartbeat() {
    emit(action::SendHeartbeat{generation()});
    s.link.heartbeat_sent_at = now_;
    s.link.heartbeat_at = now_ + s.link.heartbeat_interval;
  }

  void signal_workers(int number) {
    s.group.signals.insert(number);
    emit(action::SignalWorkers{number});
  }

  void begin_grace() {
    s.group.stopping = true;
    s.group.broken_at.reset();
    if (!s.group.kill_at) s.group.kill_at = now_ + s.settings.shutdown_timeout;
  }

  void abort_workers(const std::string& reason) {
    if (!s.settings.builtin || s.group.aborted) return;
    s.group.aborted = true;
    emit(action::AbortWorkers{reason});
  }

  // The generation is over for this node: nothing of it may go on.
  void stop_workers(const std::string& reason) {
    abort_workers(reason);
    if (!s.group.stopping) {
      signal_workers(SIGTERM);
      s.group.why_stopping = reason;
      s.group.notice_at = now_ + kSwift;
    }
    begin_grace();
  }

  // Whoever waits for workers that take their time, or loses patience with them, is to know what happened.
  void tell_why_stopping() {
    s.group.notice_at.reset();
    if (!workers_run() || s.group.why_stopping.empty()) return;
    const Millis left = s.group.kill_at ? *s.group.kill_at - now_ : 0;
    print(std::exchange(s.group.why_stopping, "") + "; " + count(running(), "worker") + " to end yet" +
          (left > 0 ? ", killed in " + seconds(left) : ""));
  }

  void kill_workers() {
    s.group.kill_at.reset();
    if (!workers_run()) return;
    print("killing " + count(running(), "worker") + " that did not end by itself");
    signal_workers(SIGKILL);
  }

  void again_told() {
    if (now_ - s.told_at < kSameSignal) return;
    emit(action::DropOutput{});
    s.group.kill_at.reset();
    if (workers_run()) signal_workers(SIGKILL);
  }

  WorkerOutcome complete(WorkerOutcome outcome, bool never_ran) const {
    const Assignment& assignment = s.group.assignment;
    outcome.group_rank = assignment.group_rank;
    outcome.host = s.settings.host;
    outcome.rank = assignment.here().first_rank + outcome.local_rank;
    outcome.collateral = is_collateral(outcome);
    outcome.retryable = !never_ran && is_retryable(outcome);
    return outcome;
  }

  bool is_collateral(const WorkerOutcome& outcome) const {
    if (outcome.ok()) return false;
    if (s.settings.builtin && outcome.signal == 0 &&
        (outcome.exit_code == kExitWorkerStopped || outcome.exit_code == kExitWorkerPeerLost)) {
      return true;
    }
    if (!s.group.stopping) return false;
    // Killed by a signal that we never sent: it died by itself, whatever we were about to do.
    return outcome.signal == 0 || s.group.signals.count(outcome.signal) > 0;
  }

  bool is_retryable(const WorkerOutcome& outcome) const {
    if (outcome.signal != 0) return true;
    if (s.settings.builtin) return !is_deterministic_failure(outcome.exit_code);
    const auto& codes = s.settings.no_restart_exit_codes;
    return std::none_of(codes.begin(), codes.end(), [&](const auto& range) {
      return range.first <= outcome.exit_code && outcome.exit_code <= range.second;
    });
  }

  void failed(const WorkerOutcome& outcome) {
    if (s.told_signal != 0) {
      // The step cannot be finished without this worker.
      if (!outcome.collateral) abort_workers("a worker of this node died");
      return;
    }
    const bool agreed_stop =
        s.settings.builtin && outcome.signal == 0 && outcome.exit_code == kExitWorkerStopped;
    if (agreed_stop && !s.group.stopping) return begin_grace();
    if (!s.group.failure_sent && (!outcome.collateral || !s.group.stopping)) report_failure(outcome);
    if (workers_run() && !s.group.stopping) {
      stop_workers("rank " + std::to_string(outcome.rank) + " ended with " +
                   describe_exit(outcome.exit_code, outcome.signal));
    }
  }

  void report_failure(const WorkerOutcome& outcome) {
    s.group.failure_sent = !outcome.collateral;
    s.group.reported = outcome;
    emit(action::SendFailure{generation(), outcome});
  }

  void cause_unknown() {
    s.group.broken_at.reset();
    if (s.group.stopping || !workers_run()) return;
    report_failure(s.group.broken);
    stop_workers("a collective broke: " + s.group.broken.error);
  }

  void give_up(int exit_code, const std::string& message) {
    s.give_up = exit_code;
    s.give_up_reason = message;
    print(message);
    if (workers_run()) {
      stop_workers(message);
      s.group.why_stopping.clear();  // it is said
    }
    settle();
  }

  // What follows once no worker runs here.
  void settle() {
    if (s.ended || workers_run()) return;
    s.group.kill_at.reset();
    s.group.broken_at.reset();
    s.group.notice_at.reset();
    if (s.told_signal != 0) return leave(s.told_signal, exit_code_of_signal(s.told_signal));
    if (s.give_up) return leave(0, *s.give_up);
    if (s.job_end) return conclude();
    close_generation();
    if (s.next) return start_next();
    // The news came while the old workers were still being stopped.
    if (s.waiting && s.waiting->max_nodes > 1 && !s.notice_at) notice();
  }

  void leave(int signal, int exit_code) {
    emit(action::SendLeave{generation(), signal});
    const bool failed = s.group.reported && !s.group.reported->collateral;
    if (signal != 0 && failed && s.group.assignment.node_count == 1) report_before(signal, exit_code);
    end(exit_code);
  }

  // The only node's workers failed, and a signal ended the job before the coordinator could sum that up.
  void report_before(int signal, int exit_code) {
    JobEnd job;
    job.exit_code = exit_code;
    job.reason = "stopped by " + describe_signal(signal);
    job.first_failure = s.group.reported;
    for (const auto& outcome : s.group.outcomes) {
      if (outcome && !outcome->ok() && outcome->local_rank != job.first_failure->local_rank)
        job.followers.push_back(*outcome);
    }
    job.restart_count = s.group.assignment.restart_count;
    emit(action::Report{std::move(job)});
  }

  void close_generation() {
    if (s.group.closed) return;
    s.group.closed = true;
    send_end();
  }

  void send_end() {
    if (all_ok() && !s.group.stopping) return emit(action::SendFinished{generation()});
    action::SendStopped stopped{generation(), {}};
    for (const auto& outcome : s.group.outcomes) stopped.outcomes.push_back(*outcome);
    emit(std::move(stopped));
  }

  // What the coordinator may have missed, or, if it is another one, cannot know.
  void say_again() {
    if (s.group.reported) emit(action::SendFailure{generation(), *s.group.reported});
    if (s.group.closed && generation() > 0) send_end();
    emit(action::SendHeartbeat{generation()});
  }

  void tell_lost() {
    s.link.tell_at.reset();
    if (s.link.connected || ending() || job_succeeded(s)) return;
    s.link.told = true;
    const std::string meanwhile = workers_run()  ? "; workers keep running"
                                  : succeeded(s) ? "; the workers of this node are done, those of others may "
                                                   "still need it"
                                                 : "";
    const Millis left = link_deadline() - now_;
    print(s.link.why_lost + meanwhile + (left > 0 ? ", trying again for " + seconds(left) : ""));
  }

  void start_next() {
    Assignment assignment = std::move(*s.next);
    s.next.reset();
    announce(assignment);
    s.group = Group{};
    s.group.assignment = assignment;
    s.group.started_at = now_;
    s.group.closed = false;
    s.group.outcomes.resize(static_cast<std::size_t>(s.settings.nproc));
    s.completion.reset();
    emit(action::StartWorkers{std::move(assignment)});
    emit(action::SendHeartbeat{generation()});
  }

  void announce(const Assignment& to) {
    if (generation() == 0) return;
    if (to.restart_count > s.group.assignment.restart_count) {
      if (s.told_restart != to.reason) print(to.reason);
    } else {
      print(to.reason + "; going on with " + count(to.world_size, "worker") + " on " +
            count(to.node_count, "node"));
    }
  }

  void conclude() {
    if (s.members_deadline) return;
    if (s.job_end->exit_code != 0) {
      emit(action::Report{*s.job_end});
    } else if (s.completion) {
      print(done_line(*s.completion));
    }
    if (!s.settings.hosting) return end(s.job_end->exit_code);
    s.members_notice_at = now_ + kMembersNotice;
    s.members_deadline = now_ + kMembersDeadline;
    emit(action::AwaitMembers{});
  }

  void end(int exit_code) {
    s.ended = true;
    emit(action::End{exit_code});
  }

  void notice() {
    s.notice_at.reset();
    if (ending() || workers_run()) return;
    if (!s.link.connected) {
      if (s.link.why_lost.empty()) return;
      s.notice_at = now_ + kNoticeEvery;
      print(s.link.why_lost + "; trying for another " + seconds(link_deadline() - now_));
    } else if (s.waiting) {
      s.notice_at = now_ + kNoticeEvery;
      print(waiting_text());
    }
  }

  std::string waiting_text() const {
    const event::Waiting& w = *s.waiting;
    const std::string where = " at " + s.settings.endpoint + ", this node as " + s.link.address;
    if (w.spare)
      return "the run is complete with " + count(w.max_nodes, "node") + where + "; waiting as a spare";
    const std::string wanted = w.min_nodes == w.max_nodes ? std::to_string(w.max_nodes)
                                                          : std::to_string(w.max_nodes) + " (at least " +
                                                                std::to_string(w.min_nodes) + ")";
    return "joined " + std::to_string(w.joined) + " of " + wanted + " nodes" + where + "; " +
           seconds(*s.waiting_since + s.settings.join_timeout - now_) + " left";
  }

  Millis link_deadline() const { return link_deadline_of(s); }

  void check_link() {
    if (s.link.connected || ending() || now_ < link_deadline()) return;
    if (!s.link.ever_connected) {
      const std::string why = s.link.why_lost.empty()
                                  ? "nothing answers at the rendezvous endpoint " + s.settings.endpoint
                                  : s.link.why_lost;
      give_up(kExitUnavailable, why + "; gave up after " + seconds(s.settings.join_timeout));
    } else if (job_succeeded(s)) {
      if (s.completion) print(done_line(*s.completion));
      give_up(kExitOk, s.link.why_lost + ", but all workers of the job ended with 0");
    } else {
      give_up(kExitUnavailable, lost_text());
    }
  }

  // Why the connection failed was printed when it was lost.
  std::string lost_text() const {
    const std::string gone = s.settings.endpoint + " is gone for " + seconds(now_ - s.link.lost_at) + ": ";
    const std::string done =
        succeeded(s) ? ". The workers of this node ended with 0; how the others ended is not known here" : "";
    if (s.link.separate) return "the store at " + gone + "start it again, and the job on all nodes" + done;
    return "the coordinator at " + gone + "the node that hosts it is lost. Start the job again on the " +
           "nodes that are left, or give the coordinator a host of its own with `dtrun store`" + done;
  }

  void check_members() {
    if (s.ended) return;
    if (due(s.members_notice_at)) {
      s.members_notice_at.reset();
      print("this node hosts the coordinator: waiting for the other nodes to leave");
    }
    if (due(s.members_deadline)) end(s.job_end->exit_code);
  }

  State& s;
  const Millis now_;
  std::vector<Action> out_;
};

}  // namespace

State initial_state(Settings settings, Millis now) {
  State state;
  state.settings = std::move(settings);
  state.started_at = now;
  return state;
}

std::vector<Action> decide(State& state, const Event& event, Millis now) {
  Step step(state, now);
  std::visit([&](const auto& e) { step.on(e); }, event);
  return step.take();
}

std::optional<Millis> next_deadline(const State& s) {
  std::optional<Millis> next;
  auto consider = [&](const std::optional<Millis>& at) {
    if (at && (!next || *at < *next)) next = at;
  };
  if (s.ended) return next;
  consider(s.link.heartbeat_at);
  consider(s.group.notice_at);
  consider(s.group.kill_at);
  consider(s.group.broken_at);
  consider(s.notice_at);
  consider(s.members_notice_at);
  consider(s.members_deadline);
  if (!s.link.connected && s.told_signal == 0 && !s.give_up && !s.job_end) {
    consider(link_deadline_of(s));
    consider(s.link.tell_at);
  }
  return next;
}

}  // namespace dtrun::agent
