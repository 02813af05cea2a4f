#include "agent/driver.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <system_error>

#include "agent/core/report.h"
#include "agent/local_address.h"
#include "agent/process/proc_scan.h"
#include "agent/process/spawn.h"
#include "agent/report_file.h"
#include "agent/system/open_files.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"

extern char** environ;

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

Millis now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Loop::Clock::now().time_since_epoch()).count();
}

std::filesystem::path run_dir(const JobSpec& spec) {
  return spec.log_dir.empty() ? spec.log_dir : spec.log_dir / run_folder(spec.run_id);
}

std::filesystem::path prepared_event_file(const JobSpec& spec) {
  if (spec.log_dir.empty()) return {};
  std::error_code ignored;  // prepare() tells
  std::filesystem::create_directories(run_dir(spec), ignored);
  return run_dir(spec) / "events.jsonl";
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

// Where colours are unwanted (no-color.org).
bool plain_terminal() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::string_view(term) == "dumb");
}

// Whether this node hosts the coordinator is filled in once it is known.
Settings settings_of(const JobSpec& spec, const Link& link, const std::string& host) {
  Settings settings;
  settings.builtin = std::holds_alternative<BuiltinTrainer>(spec.program);
  settings.nproc = spec.nproc;
  settings.min_nodes = spec.nodes.min;
  settings.max_nodes = spec.nodes.max;
  settings.max_restarts = spec.max_restarts;
  settings.no_restart_exit_codes = spec.no_restart_exit_codes;
  settings.endpoint = link.endpoint();
  settings.host = host;
  settings.join_timeout = spec.rendezvous.join_timeout.count();
  if (spec.rendezvous.read_timeout) settings.read_timeout = spec.rendezvous.read_timeout->count();
  settings.shutdown_timeout = spec.shutdown_timeout.count();
  return settings;
}

}  // namespace

Driver::Driver(const JobSpec& spec, std::string token, Guardian& guardian, Signals& signals)
    : spec_(spec),
      token_(std::move(token)),
      trainer_(std::get_if<BuiltinTrainer>(&spec.program)),
      guardian_(guardian),
      signals_(signals),
      console_(loop_,
               [this](bool congested) {
                 congested_ = congested;
                 for (auto& [serial, worker] : workers_) worker->pause_output(congested);
               }),
      view_(console_),
      log_(prepared_event_file(spec), host_name(), [this](const std::string& why) { console_.notice(why); }),
      planner_(spec, own_environment(), token_, guardian.scratch()),
      outsiders_(has_other_children({guardian.pid()})),
      hang_guard_(loop_, console_, {spec.heartbeat_timeout.count(), spec.stall_timeout.count()},
                  own_environment(), hang_view()) {
  identity_.member_id = random_id();
  identity_.host = host_name();
}

int Driver::run() {
  if (Status status = prepare(); !status.ok()) {
    console_.notice(status.message());
    flush_console();
    return status.exit_code();
  }
  while (!exit_code_) {
    arm_timer();
    if (Status status = loop_.run_once(); !status.ok()) {
      console_.notice(status.message());
      exit_code_ = status.exit_code();
    }
    drain_events();
  }
  finish();
  return *exit_code_;
}

Status Driver::prepare() {
  signals_.watch(loop_, [this](int number) { from_signal(number); });
  if (Status status = allow_open_files(spec_.nproc, spec_.nodes.max); !status.ok()) return status;
  if (std::error_code error; !spec_.log_dir.empty()) {
    std::filesystem::create_directories(run_dir(spec_), error);
    if (error) {
      return Status(kExitUsage, "--log_dir " + spec_.log_dir.string() + ": cannot create " +
                                    run_dir(spec_).string() + ": " + error.message());
    }
  }
  if (Status status = hold_master_port(); !status.ok()) return status;
  auto link = Link::start(spec_.rendezvous, loop_, [this](auto event) { from_client(std::move(event)); });
  if (!link.ok()) return link.status();
  link_ = std::move(link).value();
  state_ = initial_state(settings_of(spec_, *link_, identity_.host), now_ms());
  log_.write("start", {{"run_id", spec_.run_id}, {"endpoint", link_->endpoint()}});
  return {};
}

void Driver::drain_events() {
  while (!events_.empty() && !exit_code_) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    for (const Action& action : decide(state_, event, now_ms())) {
      std::visit([this](const auto& a) { act(a); }, action);
    }
  }
}

void Driver::arm_timer() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  const std::optional<Millis> due = next_deadline(state_);
  if (!due) return;
  timer_ = loop_.call_at(Loop::Clock::time_point(std::chrono::milliseconds(*due)), [this] {
    timer_.reset();
    events_.push_back(event::Tick{});
  });
}

void Driver::finish() {
  view_.clear();
  hang_guard_.rest();
  workers_.clear();
  sweep(token_);
  sweep_strangers();
  link_->close(1s);
  link_.reset();
  flush_console();
}

// Waits until what people are to see is written, or its reader is gone, or a signal tells us to end.
void Driver::flush_console() {
  const auto told = [](const Event& event) { return std::holds_alternative<event::Signal>(event); };
  events_.clear();
  while (console_.pending() && loop_.run_once().ok())
    if (std::any_of(events_.begin(), events_.end(), told)) console_.drop();
}

// --- what happens
// -------------------------------------------------------------------------------------------

void Driver::from_client(rendezvous::ClientEvent event) {
  if (auto* opened = std::get_if<rendezvous::Opened>(&event)) {
    const std::string& chosen = spec_.rendezvous.local_address;
    identity_.address =
        chosen.empty() ? reachable_address(opened->local_address, spec_.rendezvous.host) : chosen;
    state_.settings.hosting = link_->hosting();  // known by now, unlike at the start
    events_.push_back(event::Opened{});
  } else if (std::holds_alternative<rendezvous::Connected>(event)) {
    if (!entry_)
      entry_.emplace(registry_folder(), RegisteredJob{spec_.run_id, link_->host(), link_->port(), getpid()});
    events_.push_back(event::Connected{});
  } else if (auto* received = std::get_if<rendezvous::Received>(&event)) {
    if (auto known = to_event(received->message, spec_)) events_.push_back(std::move(*known));
  } else if (auto* lost = std::get_if<rendezvous::Disconnected>(&event)) {
    log_.write("disconnected", {{"why", lost->why.message()}, {"attempt", lost->attempt}});
    events_.push_back(event::Disconnected{lost->why.message(), lost->permanent});
  } else if (auto* done = std::get_if<rendezvous::KvDone>(&event)) {
    auto worker = workers_.find(done->worker_serial);
    if (worker == workers_.end()) return;
    control::FromAgent reply;
    *reply.mutable_kv() = std::move(done->reply);
    worker->second->send(reply);
  }
}

void Driver::told_to_end(int number) {
  log_.write("signal", {{"signal", describe_signal(number)}});
  events_.push_back(event::Signal{number});
}

void Driver::from_signal(int number) {
  const auto& chosen = spec_.signals_to_handle;
  if (std::find(chosen.begin(), chosen.end(), number) != chosen.end()) return told_to_end(number);
  switch (number) {
    case SIGCHLD:
      return reap_children();
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return told_to_end(number);
    case SIGUSR1:
    case SIGUSR2:
      if (trainer_ != nullptr) return;  // it has no use for them, and would die of them
      [[fallthrough]];
    case SIGCONT:
      for (auto& [serial, worker] : workers_) worker->signal_group(number);
      return;
    case SIGTSTP:
      for (auto& [serial, worker] : workers_) worker->signal_group(SIGSTOP);
      return stop_self();
    default:
      return;
  }
}

void Driver::from_worker(WorkerProcess& worker, int serial, const control::FromWorker& message) {
  using Body = control::FromWorker;
  switch (message.body_case()) {
    case Body::kHello:
      if (message.hello().protocol() == kControlProtocol) return worker.send(start_message());
      return worker.condemn("dtrun and dtrun-worker are of different versions (control protocol " +
                            std::to_string(kControlProtocol) + " and " +
                            std::to_string(message.hello().protocol()) + "): install both from one build");
    case Body::kKv:
      return link_->kv(serial, spec_.run_id + "/" + std::to_string(worker.generation()) + "/", message.kv());
    case Body::kProgress:
      worker.set_pulse(message.progress().pulse());
      if (worker.local_rank() == 0) note_progress(message.progress());
      if (state_.group.assignment.group_rank == 0 && worker.local_rank() == 0)
        view_.update(message.progress());
      return;
    case Body::kCollectiveBroken:
      events_.push_back(
          event::WorkerBroken{worker.generation(), worker.local_rank(), message.collective_broken().error()});
      return;
    case Body::kCompleted: {
      const control::Completed& done = message.completed();
      events_.push_back(
          event::WorkerCompleted{{done.step(), done.loss(), done.accuracy(), done.model_path()}});
      return;
    }
    case Body::kFault:
      return worker.set_error(message.fault().message());
    case Body::BODY_NOT_SET:
      return;
  }
}

// `dtrun status` shows what heartbeats carry. One node's are enough to be up to date.
void Driver::note_progress(const control::Progress& progress) {
  const bool first = !progress_ || (progress_->step() == 0 && progress.step() > 0);
  progress_ = progress;
  if (first || state_.group.assignment.group_rank == 0) events_.push_back(event::Progressed{first});
}

// Workers, orphans that came to us as their subreaper, and the guardian.
void Driver::reap_children() {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const pid_t pid = info.si_pid;
    auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](auto& w) { return w.second->pid() == pid; });
    if (worker != workers_.end()) {
      worker->second->reap();
      continue;
    }
    waitpid(pid, nullptr, 0);
    if (pid == guardian_.pid()) {
      guardian_.forget();
      if (++guardian_restarts_ < 100) guardian_.start();
    }
  }
}

void Driver::worker_exited(const WorkerProcess& worker) { sweep(worker_token(token_, worker.local_rank())); }

std::vector<pid_t> Driver::known_children() const {
  std::vector<pid_t> known = {guardian_.pid()};
  for (const auto& [serial, worker] : workers_) known.push_back(worker->pid());
  return known;
}

// Kills what left its group (setsid, a daemon). Its parent is dead, so it is our child now: without unknown
// children there is nothing to look for. A process may fork meanwhile, hence the rounds.
void Driver::sweep(const std::string& token) {
  for (int round = 0; round < 10 && has_other_children(known_children()); ++round) {
    if (kill_by_token(token) == 0) return;
  }
}

// Where limits cannot be marked (limit_mark.h), what gave up its parent, its group and its environment is
// known by nothing but having come to us, the subreaper. Only to be called while no worker runs. Children
// that were ours before the job began (of a shell that became dtrun) may have left us orphans too, so with
// them nothing is certain, and nobody is touched.
void Driver::sweep_strangers() {
  if (outsiders_) return;
  kill_other_children(known_children(), 2s);
}

// --- what to do
// ---------------------------------------------------------------------------------------------

void Driver::act(const action::StartWorkers& a) {
  log_.write("start_workers", {{"generation", a.assignment.generation},
                               {"group_rank", a.assignment.group_rank},
                               {"world_size", a.assignment.world_size},
                               {"restart_count", a.assignment.restart_count},
                               {"reason", a.assignment.reason}});
  workers_.clear();
  sweep_strangers();
  view_.clear();
  if (next_serial_ == 0 && !spec_.log_dir.empty()) {  // an earlier job's of this name
    std::error_code ignored;
    std::filesystem::remove(run_dir(spec_) / "report.json", ignored);
  }
  progress_.reset();
  for (int local_rank = 0; local_rank < spec_.nproc; ++local_rank) {
    start_worker(planner_.plan(console_, a.assignment, local_rank));
  }
  hang_guard_.watch();
}

HangGuard::View Driver::hang_view() {
  HangGuard::View view;
  view.workers = [this] {
    std::vector<WorkerProcess*> workers;
    if (state_.group.stopping) return workers;  // their grace is limited anyway
    for (auto& [serial, worker] : workers_) workers.push_back(worker.get());
    return workers;
  };
  view.held_back = [this] { return congested_; };
  view.found = [this](const WorkerProcess& worker, const std::string& what) {
    log_.write("hang", {{"rank", worker.rank()}, {"pid", worker.pid()}, {"what", what}});
    console_.notice("rank " + std::to_string(worker.rank()) + ": " + what +
                    "; it will be killed once its stacks are written");
  };
  return view;
}

// A SIGKILL that nobody here sent may have been the kernel's; a shell passes on its program's as exit code.
void Driver::note_cause(WorkerOutcome* outcome) {
  const bool ours = outcome->cause != EndCause::kUnknown || state_.group.signals.count(SIGKILL) > 0;
  if (ours || outcome->ok()) return;
  const bool shell = outcome->signal == 0 && outcome->exit_code == exit_code_of_signal(SIGKILL);
  const bool killed = outcome->signal == SIGKILL ? oom_.killed(outcome->pid) : shell && oom_.killed_another();
  if (killed) outcome->cause = EndCause::kOutOfMemory;
}

void Driver::start_worker(WorkerPlan plan) {
  const int serial = next_serial_++;
  const std::int64_t generation = plan.generation;
  auto& slot = workers_[serial];
  WorkerProcess::Callbacks callbacks;
  callbacks.message = [this, serial](const control::FromWorker& message) {
    from_worker(*workers_.at(serial), serial, message);
  };
  callbacks.exited = [this, serial] { worker_exited(*workers_.at(serial)); };
  callbacks.ended = [this, generation](WorkerOutcome outcome, bool never_ran) {
    note_cause(&outcome);
    log_.write("worker_ended", {{"generation", generation},
                                {"rank", outcome.rank},
                                {"pid", outcome.pid},
                                {"how", describe_exit(outcome.exit_code, outcome.signal, outcome.cause)},
                                {"error", outcome.error}});
    events_.push_back(event::WorkerExited{generation, std::move(outcome), never_ran});
  };
  const int rank = plan.rank;
  slot = std::make_unique<WorkerProcess>(loop_, console_, std::move(plan), std::move(callbacks));
  slot->start();
  if (slot->pid() > 0) {
    log_.write("worker_started", {{"generation", generation}, {"rank", rank}, {"pid", slot->pid()}});
  }
}

control::FromAgent Driver::start_message() const {
  control::FromAgent message;
  control::Start* start = message.mutable_start();
  start->set_config_json(trainer_->config_json);
  start->set_address(state_.group.assignment.here().address);
  start->set_lanes(trainer_->lanes);
  return message;
}

void Driver::act(const action::SignalWorkers& a) {
  log_.write("signal_workers", {{"signal", describe_signal(a.number)}});
  hang_guard_.rest();
  for (auto& [serial, worker] : workers_) worker->signal_group(a.number);
}

void Driver::act(const action::AbortWorkers& a) {
  log_.write("abort_workers", {{"reason", a.reason}});
  control::FromAgent message;
  message.mutable_stop()->set_kind(control::Stop::ABORT);
  message.mutable_stop()->set_reason(a.reason);
  for (auto& [serial, worker] : workers_) worker->send(message);
}

void Driver::act(const action::SendJoin& a) {
  log_.write("join", {{"generation", a.running.generation},
                      {"group_rank", a.running.generation > 0 ? a.running.group_rank : -1},
                      {"address", identity_.address},
                      {"hosting", link_->hosting()}});
  link_->send(to_message(a, spec_, identity_));
}

void Driver::act(const action::SendHeartbeat& a) { link_->send(to_message(a, worker_pids(), progress_)); }

// By local rank; 0 for one that does not run.
std::vector<pid_t> Driver::worker_pids() const {
  std::vector<pid_t> pids(static_cast<std::size_t>(spec_.nproc), 0);
  for (const auto& [serial, worker] : workers_) {
    pids[static_cast<std::size_t>(worker->local_rank())] = std::max<pid_t>(0, worker->pid());
  }
  return pids;
}

void Driver::act(const action::SendFailure& a) {
  log_.write("report_failure",
             {{"generation", a.generation},
              {"rank", a.outcome.rank},
              {"how", describe_exit(a.outcome.exit_code, a.outcome.signal, a.outcome.cause)},
              {"collateral", a.outcome.collateral}});
  link_->send(to_message(a));
}

void Driver::act(const action::SendStopped& a) {
  log_.write("stopped", {{"generation", a.generation}});
  view_.clear();
  link_->send(to_message(a));
}

void Driver::act(const action::SendFinished& a) {
  log_.write("finished", {{"generation", a.generation}});
  view_.clear();
  link_->send(to_message(a));
}

void Driver::act(const action::SendLeave& a) {
  log_.write("leave", {{"signal", a.signal}});
  link_->send(to_message(a));
}

// The server has no news of departures, so this last moment of the host's life is spent looking.
void Driver::act(const action::AwaitMembers& a) {
  if (!link_) return;  // we waited long enough
  if (link_->members() <= 1) {
    events_.push_back(event::MembersLeft{});
  } else {
    loop_.call_at(Loop::Clock::now() + 20ms, [this, a] { act(a); });
  }
}

void Driver::act(const action::DropOutput&) { console_.drop(); }

void Driver::act(const action::Print& a) {
  log_.write("notice", {{"text", a.text}});
  console_.notice(a.text);
}

void Driver::act(const action::Report& a) {
  const std::string file = write_report_file(a.job);
  const std::string text = failure_report(a.job, spec_.max_restarts, file,
                                          ReportStyle{console_.has_terminal() && !plain_terminal()});
  log_.write(
      "report",
      {{"exit_code", a.job.exit_code}, {"file", file}, {"text", failure_report(a.job, spec_.max_restarts)}});
  if (console_.has_terminal()) console_.write(Console::Stream::kErr, "\n");
  console_.notice(text);
}

// The report's file name; empty without a log directory.
std::string Driver::write_report_file(const JobEnd& job) {
  if (spec_.log_dir.empty() || reported_) return "";
  reported_ = true;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::filesystem::path file = run_dir(spec_) / "report.json";
  const Status status =
      write_report(file, report_json(job, {spec_.run_id, identity_.host, spec_.max_restarts, now.count()}));
  if (!status.ok()) console_.notice(status.message());
  return status.ok() ? file.string() : "";
}

void Driver::act(const action::End& a) {
  if (a.exit_code != 0) write_report_file(unreported_end(a.exit_code));
  log_.write("end", {{"exit_code", a.exit_code}});
  exit_code_ = a.exit_code;
}

// Ends that the coordinator did not announce to this node.
JobEnd Driver::unreported_end(int exit_code) const {
  JobEnd job;
  job.exit_code = exit_code;
  job.restart_count = state_.group.assignment.restart_count;
  job.reason = state_.give_up_reason;
  if (state_.told_signal != 0) job.reason = "stopped by " + describe_signal(state_.told_signal);
  return job;
}

// A node that will not have rank 0 need not have the port.
Status Driver::hold_master_port() {
  const int wanted = spec_.rendezvous.master_port;
  identity_.master_port = wanted;
  auto held = hold_port(wanted);
  if (held.ok()) {
    identity_.master_port = held.value().port;
    master_port_ = std::move(held.value().socket);
    return {};
  }
  const bool surely_first = spec_.nodes.max == 1 || spec_.node_rank == 0;
  return surely_first ? held.status() : Status();
}

}  // namespace dtrun::agent
