// The order of events in a job, seen from here:
//
//   prepare        signals are watched, open files and MASTER_PORT are taken, the link is opened
//   loop           anything that happens (a message, a signal, a worker's output or end, a timer) becomes an
//                  event in the queue; decide() answers it with actions, carried out before the next event
//   StartWorkers   the last generation's workers are forgotten, the new ones spawned and watched for hangs
//   a worker ends  SIGCHLD: its group is killed, it is reaped, processes that left its group are killed, its
//                  output is read to the end; only then WorkerExited
//   End            the loop stops; the job's last processes are killed, the link closed, the terminal written
#include "agent/driver.h"

#include <signal.h>

#include <algorithm>
#include <system_error>

#include "agent/core/supervisor/notices.h"
#include "agent/local_address.h"
#include "agent/output/output_plan.h"
#include "agent/process/spawn.h"
#include "agent/system/open_files.h"
#include "agent/system/termination_log.h"
#include "agent/system/wall_clock.h"
#include "agent/text/report.h"
#include "proto/base/ids.h"
#include "proto/core/contract.h"
#include "rendezvous/identity/credential.h"

extern char** environ;

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

std::filesystem::path prepared_event_file(const JobSpec& spec) {
  if (spec.log_dir.empty()) return {};
  std::error_code ignored;  // prepare() reports it
  std::filesystem::create_directories(run_dir(spec), ignored);
  return run_dir(spec) / "events.jsonl";
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

Settings settings_of(const JobSpec& spec, const Link& link, const std::string& host) {
  Settings settings;
  settings.builtin = std::holds_alternative<BuiltinTrainer>(spec.program);
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program))
    settings.in_memory_recovery = trainer->in_memory_recovery;
  settings.nproc = spec.nproc;
  settings.has_gpu_driver = !spec.gpu_reader.empty();
  settings.begin_together = spec.output.remote.has_value();
  settings.no_restart_exit_codes = spec.no_restart_exit_codes;
  settings.may_be_started_again = spec.may_be_started_again;
  settings.has_successor = std::holds_alternative<Candidates>(spec.rendezvous.hosting);
  settings.is_replaced = spec.is_replaced;
  settings.endpoint = link.endpoint();
  settings.host = host;
  settings.join_timeout = spec.rendezvous.join_timeout.count();
  if (spec.rendezvous.read_timeout) settings.read_timeout = spec.rendezvous.read_timeout->count();
  settings.shutdown_timeout = spec.shutdown_timeout.count();
  return settings;
}

}  // namespace

Driver::Driver(const JobSpec& spec, std::string tag, Watchdog& watchdog, Signals& signals)
    : spec_(spec),
      trainer_(std::get_if<BuiltinTrainer>(&spec.program)),
      signals_(signals),
      console_(open_console()),
      view_(console_, spec.output.progress),
      log_(prepared_event_file(spec), host_name(), [this](const std::string& why) { console_.error(why); }),
      reporter_(spec, host_name(), console_, log_),
      scratch_(watchdog.scratch()),
      planner_(spec, own_environment(), tag, scratch_),
      children_(std::move(tag), watchdog),
      hang_guard_(
          loop_,
          {.heartbeat_timeout = spec.heartbeat_timeout.count(), .stall_timeout = spec.stall_timeout.count()},
          own_environment(), hang_view()),
      gpu_guard_(loop_, spec.gpu_reader, own_environment(), "/dev/kmsg",
                 [this](pid_t pid) { children_.spare(pid); }) {
  identity_.member_id = random_id();
  identity_.host = host_name();
}

Console& Driver::open_console() {
  const auto congestion = [this](bool congested) {
    congested_ = congested;
    children_.pause_output(congested);
  };
  if (spec_.output.remote) return remote_console_.emplace(loop_, *spec_.output.remote, congestion);
  return own_console_.emplace(loop_, spec_.output.colour, congestion);
}

int Driver::run() {
  if (Status status = prepare(); !status.ok()) give_up(status);
  const bool begun = !exit_code_;
  while (!exit_code_) {
    arm_timer();
    if (Status status = loop_.run_once(); !status.ok()) give_up(status);
    drain_events();
  }
  if (*exit_code_ != kExitOk && !failure_.empty()) write_termination_message(failure_);
  begun ? finish() : flush_console();
  return *exit_code_;
}

void Driver::give_up(const Status& status) {
  failure_ = status.message();
  console_.error(failure_);
  exit_code_ = status.exit_code();
}

Status Driver::prepare() {
  signals_.watch(loop_, [this](int number) { from_signal(number); });
  if (spec_.output.remote && spec_.output.remote->in_fd >= 0) listen_to_launcher();
  const Result<std::size_t> unauthenticated_files = allow_open_files(spec_.nproc, spec_.nodes.max);
  if (!unauthenticated_files.ok()) return unauthenticated_files.status();
  if (std::error_code error; !spec_.log_dir.empty()) {
    std::filesystem::create_directories(run_dir(spec_), error);
    if (error) {
      return Status(kExitCannotCreate, "--log_dir " + spec_.log_dir.string() + ": cannot create " +
                                           run_dir(spec_).string() + ": " + error.message());
    }
  }
  if (Status status = hold_master_port(); !status.ok()) return status;
  auto link = Link::start(
      spec_.rendezvous, spec_.run_id, identity_.member_id, unauthenticated_files.value(), scratch_, loop_,
      [this](auto event) { from_client(std::move(event)); },
      [this](const std::string& line) {
        log_.write("notice", {{"text", line}});
        console_.notice(line);
      });
  if (!link.ok()) return link.status();
  link_ = std::move(link).value();
  const std::vector<int> ports = ports_of(spec_.rendezvous.hosting);
  if (link_->hosting() && !ports.empty() && link_->port() != ports.front())
    console_.notice("port " + std::to_string(ports.front()) + " is taken: the coordinator is at " +
                    link_->endpoint());
  state_ = initial_state(settings_of(spec_, *link_, identity_.host), millis_now());
  log_.write("start", {{"run_id", spec_.run_id},
                       {"endpoint", link_->endpoint()},
                       {"device", spec_.device},
                       {"gpus", gpus_text(spec_.gpus)}});
  gpu_guard_.begin();
  return {};
}

void Driver::listen_to_launcher() {
  if (spec_.output.remote->input_fd >= 0)
    input_.emplace(loop_, spec_.output.remote->input_fd, [this](std::size_t bytes) {
      launch::FromHost taken;
      taken.mutable_taken()->set_bytes(bytes);
      remote_console_->send(taken);
    });
  launch::FromHost alive;
  alive.mutable_alive();
  launcher_.emplace(loop_, spec_.output.remote->in_fd,
                    LauncherLine::Events{.told = [this](int number) { told_to_end(number); },
                                         .alive = [this, alive] { remote_console_->send(alive); },
                                         .input = [this](const std::string& text) { take_input(text); }});
}

void Driver::take_input(const std::string& text) {
  if (!input_) return;
  text.empty() ? input_->end() : input_->add(text);
}

void Driver::drain_events() {
  while (!events_.empty() && !exit_code_) {
    const Event event = std::move(events_.front());
    events_.pop_front();
    for (const Action& action : decide(state_, event, millis_now())) {
      std::visit([this](const auto& a) { act(a); }, action);
    }
    if (entry_) entry_->set_ready(state_.takes_part());
    show_waiting();
  }
}

bool Driver::shows_waiting() const {
  return console_.has_terminal() && spec_.output.progress != ProgressMode::kPlain;
}

// The standing notice is the terminal's last line, below everything else, with its seconds counted down.
void Driver::show_waiting() {
  const std::string text = shows_waiting() ? standing_notice(state_, millis_now()) : "";
  if (!text.empty() || waiting_shown_) console_.set_bar(text);
  waiting_shown_ = !text.empty();
  if (waiting_timer_) loop_.cancel(*waiting_timer_);
  waiting_timer_.reset();
  if (!waiting_shown_) return;
  waiting_timer_ = loop_.call_at(Loop::Clock::now() + 1s, [this] {
    waiting_timer_.reset();
    show_waiting();
  });
}

void Driver::arm_timer() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  const std::optional<Millis> due = next_deadline(state_);
  if (!due) return;
  timer_ = loop_.call_at(time_point_of(*due), [this] {
    timer_.reset();
    events_.push_back(event::Tick{});
  });
}

void Driver::finish() {
  view_.clear();
  hang_guard_.rest();
  gpu_guard_.rest();
  if (children_.left_behind()) wait_for_left_behind();
  launcher_.reset();
  children_.clear();
  children_.sweep();
  children_.kill_unknown_children();
  close_link();
  view_.end();
  flush_console();
}

void Driver::close_link() {
  if (!link_) return;
  link_->close(1s);
  link_.reset();
}

// The job is over: no other node has to wait for the processes that workers left behind on this one.
void Driver::wait_for_left_behind() {
  close_link();
  events_.clear();
  while (children_.left_behind() && loop_.run_once().ok()) {
    const bool again = was_told_to_end() && millis_now() - state_.ending.told_at >= kSameSignal;
    events_.clear();
    if (again) children_.kill_left_behind("told to end at once");
  }
}

// For use while no event is decided on any more.
bool Driver::was_told_to_end() const {
  return std::ranges::any_of(events_,
                             [](const Event& event) { return std::holds_alternative<event::Signal>(event); });
}

// Waits until the console's text is written, or its reader is gone, or a signal tells us to end.
void Driver::flush_console() {
  events_.clear();
  while (console_.pending() && loop_.run_once().ok())
    if (was_told_to_end()) console_.drop();
}

// ---- what happens

void Driver::from_client(rendezvous::ClientEvent event) {
  if (auto* opened = std::get_if<rendezvous::Opened>(&event)) {
    const std::string& chosen = spec_.rendezvous.local_address;
    const std::vector<std::string> hosts = hosts_of(spec_.rendezvous.hosting);
    identity_.address = chosen.empty()
                            ? reachable_address(opened->local_address, hosts.empty() ? "" : hosts.front())
                            : chosen;
    events_.push_back(event::Opened{.hosting = link_->hosting()});  // not known at the start, but now
  } else if (std::holds_alternative<rendezvous::Connected>(event)) {
    if (!entry_) {
      const auto& key = spec_.rendezvous.key;
      entry_.emplace(registry_folder(), RegisteredJob{.run_id = spec_.run_id,
                                                      .host = link_->host(),
                                                      .port = link_->port(),
                                                      .pid = getpid(),
                                                      .has_key = key != nullptr,
                                                      .key = key && spec_.output.remote ? key->text() : ""});
      if (const std::string notice = entry_->notice(); !notice.empty()) console_.notice(notice);
    }
    events_.push_back(event::Connected{link_->endpoint()});
  } else if (auto* received = std::get_if<rendezvous::Received>(&event)) {
    if (auto known = to_event(received->message, spec_)) events_.push_back(std::move(*known));
  } else if (auto* lost = std::get_if<rendezvous::Disconnected>(&event)) {
    log_.write("disconnected", {{"why", lost->why.message()}, {"attempt", lost->attempt}});
    events_.push_back(event::Disconnected{
        .why = lost->why.message(), .permanent = lost->permanent, .exit_code = lost->why.exit_code()});
  } else if (auto* done = std::get_if<rendezvous::KvDone>(&event)) {
    WorkerProcess* worker = children_.find(done->worker_serial);
    if (worker == nullptr) return;
    control::FromAgent reply;
    *reply.mutable_kv() = std::move(done->reply);
    worker->send(reply);
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
      return children_.reap();
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return told_to_end(number);
    case SIGUSR1:
    case SIGUSR2:
      // dtrun-worker has no use for them.
      if (trainer_ != nullptr) return spec_.may_be_started_again ? told_to_end(number) : void();
      [[fallthrough]];
    case SIGCONT:
      return children_.signal_groups(number);
    case SIGTSTP:
      children_.signal_groups(SIGSTOP);
      return stop_self();
    default:
      return;
  }
}

void Driver::from_worker(WorkerProcess& worker, int serial, const control::FromWorker& message) {
  using Body = control::FromWorker;
  switch (message.body_case()) {
    case Body::kHello:
      if (message.hello().protocol() == kControlProtocol)
        return worker.send(
            job_message(*trainer_, spec_.gpus, worker.local_rank(), worker.has_in_memory_checkpoint()));
      return worker.condemn("dtrun and dtrun-worker are of different versions (control protocol " +
                            std::to_string(kControlProtocol) + " and " +
                            std::to_string(message.hello().protocol()) + "): install both from one build");
    case Body::kKv:
      if (!link_) return;
      return link_->kv(serial, spec_.run_id + "/" + std::to_string(worker.generation()) + "/", message.kv());
    case Body::kProgress:
      worker.set_pulse(message.progress().pulse());
      if (worker.generation() != state_.generation.number()) return;
      if (worker.leads()) events_.push_back(to_event(message.progress()));
      if (worker.leads() && message.progress().has_first_step()) {
        events_.push_back(
            event::Trained{.first_step = message.progress().first_step(),
                           .step = message.progress().step(),
                           .from_in_memory_checkpoint = message.progress().from_in_memory_checkpoint()});
      }
      if (worker.rank() == 0 && state_.progresses()) view_.update(message.progress());
      return;
    case Body::kReady:
      log_.write("worker_ready", {{"generation", worker.generation()},
                                  {"rank", worker.rank()},
                                  {"pid", worker.pid()},
                                  {"step", message.ready().has_step() ? message.ready().step() : -1},
                                  {"error", message.ready().error()}});
      events_.push_back(to_event(serial, message.ready()));
      return;
    case Body::kCompleted:
      events_.push_back(to_event(message.completed()));
      return;
    case Body::kFault:
      return worker.set_error(message.fault().message());
    case Body::BODY_NOT_SET:
      return;
  }
}

// ---- what to do

void Driver::act(const action::StartWorkers& a) {
  log_.write("start_workers", {{"generation", a.assignment.generation},
                               {"group_rank", a.assignment.group_rank},
                               {"world_size", a.assignment.world_size},
                               {"restart_count", a.assignment.restart_count},
                               {"reason", a.assignment.reason}});
  children_.kill_left_behind("the workers are started again");
  children_.forget_ended();
  if (children_.empty()) children_.kill_unknown_children();
  view_.begin({.generation = a.assignment.generation, .world_size = a.assignment.world_size});
  killed_ = false;
  spawn(a.spawn);
}

void Driver::act(const action::WarmUp& a) {
  children_.forget_ended();
  spawn(a.spawn);
}

void Driver::spawn(const std::vector<action::Spawn>& workers) {
  if (!std::exchange(started_, true)) reporter_.remove_earlier();
  for (const action::Spawn& one : workers)
    start_worker(one.serial, planner_.plan(console_, state_.generation.assignment, one.local_rank, one.rank));
  hang_guard_.watch();
}

void Driver::act(const action::AwaitGpus&) {
  gpu_guard_.when_free([this](const std::string& note) { events_.push_back(event::GpusFree{.note = note}); });
}

void Driver::act(const action::AskGpu& a) {
  gpu_guard_.explain(gpu_of(a.local_rank), [this, serial = a.serial](std::string trouble) {
    if (!trouble.empty()) log_.write("gpu_trouble", {{"text", trouble}});
    events_.push_back(event::GpuFound{.serial = serial, .trouble = std::move(trouble)});
  });
}

// The PCI address of the worker's GPU; empty if it is not known.
std::string Driver::gpu_of(int local_rank) const {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < spec_.gpus.size() ? spec_.gpus[index].pci : "";
}

// A worker keeps the number before its lines while its node has fewer workers, and so others, than usual.
void Driver::act(const action::PlaceWorker& a) {
  WorkerProcess* worker = children_.find(a.serial);
  const Assignment& assignment = state_.generation.assignment;
  if (worker == nullptr) return;
  log_.write("place_worker",
             {{"generation", assignment.generation}, {"rank", a.rank}, {"pid", worker->pid()}});
  worker->set_place(assignment.generation, a.rank, a.index == 0);
  if (assignment.node.nproc == spec_.nproc) {
    const LinePrefix prefix = planner_.prefix(a.rank, worker->local_rank());
    worker->set_prefix(prefix, prefix);
  }
  worker->send(start_message(assignment, a.rank, a.index));
}

void Driver::act(const action::Recovered& a) {
  log_.write("recovered", {{"generation", state_.generation.number()},
                           {"first_step", a.first_step},
                           {"kept", a.kept},
                           {"replaced", a.replaced},
                           {"from_in_memory_checkpoint", a.from_in_memory_checkpoint},
                           {"milliseconds", a.took}});
}

void Driver::act(const action::PauseWorkers& a) {
  log_.write("pause_workers", {{"after_step", a.after_step}, {"reason", a.reason}});
  children_.send(
      stop_message(a.after_step ? control::Stop::PAUSE_AFTER_STEP : control::Stop::PAUSE, a.reason));
}

void Driver::tell_people(const std::string& text) {
  log_.write("notice", {{"text", text}});
  console_.notice(text);
}

HangGuard::View Driver::hang_view() {
  HangGuard::View view;
  view.workers = [this] { return children_.workers(); };
  view.matters = [this] { return hangs_matter(state_); };
  view.held_back = [this] { return congested_; };
  view.silence_tells = [this] { return trainer_ != nullptr || state_.generation.assignment.node_count == 1; };
  view.spares_victims = [this] { return state_.workers_outlive(); };
  view.tell = [this](const std::string& text) { tell_people(text); };
  view.found = [this](std::vector<WorkerOutcome> hung) {
    for (const WorkerOutcome& one : hung)
      log_.write("hang", {{"rank", one.rank}, {"pid", one.pid}, {"what", one.error}, {"where", one.where}});
    events_.push_back(event::HangFound{.generation = state_.generation.number(), .hung = std::move(hung)});
  };
  return view;
}

// A SIGKILL that this agent did not send may be the kernel's, for lack of memory. A shell ends with 137 if
// its program got one.
void Driver::note_cause(WorkerOutcome* outcome) {
  if (killed_ || outcome->cause != EndCause::kUnknown || outcome->ok()) return;
  const bool shell = outcome->signal == 0 && outcome->exit_code == exit_code_of_signal(SIGKILL);
  const bool killed = outcome->signal == SIGKILL ? oom_.killed(outcome->pid) : shell && oom_.killed_another();
  if (killed) outcome->cause = EndCause::kOutOfMemory;
}

void Driver::start_worker(int serial, WorkerPlan plan) {
  const int rank = plan.rank;
  const std::int64_t generation = plan.generation;
  WorkerProcess::Callbacks callbacks;
  callbacks.message = [this, serial](const control::FromWorker& message) {
    from_worker(*children_.find(serial), serial, message);
  };
  callbacks.exited = [this, serial](bool well) { return let_end(*children_.find(serial), well); };
  callbacks.ended = [this, serial](WorkerOutcome outcome, bool never_ran) {
    note_cause(&outcome);
    gpu_guard_.ended(outcome.pid);
    worker_ended(serial, children_.find(serial)->generation(), std::move(outcome), never_ran);
  };
  WorkerProcess& worker = children_.add(
      serial, std::make_unique<WorkerProcess>(loop_, console_, std::move(plan), std::move(callbacks)));
  worker.start();
  if (worker.pid() > 0) {
    log_.write("worker_started", {{"generation", generation}, {"rank", rank}, {"pid", worker.pid()}});
  }
}

// A worker that is stopped because the job or the generation failed takes with it the processes that it
// started: they have received the signal too.
bool Driver::let_end(const WorkerProcess& worker, bool well) {
  const Children::Tell tell = [this](const std::string& text) { tell_people(text); };
  if (well && (state_.ending.told_signal != 0 || !state_.generation.stopping)) {
    const auto deadline = state_.generation.kill_at ? time_point_of(*state_.generation.kill_at)
                                                    : Loop::Clock::now() + spec_.shutdown_timeout;
    return children_.let_end(loop_, worker, deadline, tell);
  }
  children_.sweep(worker, well || !state_.generation.stopping ? tell : nullptr);
  return false;
}

void Driver::worker_ended(int serial, std::int64_t generation, WorkerOutcome outcome, bool never_ran) {
  log_.write("worker_ended", {{"generation", generation},
                              {"rank", outcome.rank},
                              {"pid", outcome.pid},
                              {"how", describe_exit(outcome.exit_code, outcome.signal, outcome.cause)},
                              {"error", outcome.error}});
  events_.push_back(
      event::WorkerExited{.serial = serial, .outcome = std::move(outcome), .never_ran = never_ran});
}

void Driver::act(const action::SignalWorkers& a) {
  log_.write("signal_workers", {{"signal", describe_signal(a.number)}});
  hang_guard_.rest();
  killed_ = killed_ || a.number == SIGKILL;
  if (a.number == SIGKILL && !a.only) children_.kill_left_behind("the workers are killed too");
  if (!a.only) return children_.signal_groups(a.number);
  if (WorkerProcess* worker = children_.find(*a.only)) worker->signal_group(a.number);
}

void Driver::act(const action::LookAtWorkers& a) { hang_guard_.look(a.limit); }

void Driver::act(const action::KillHung&) { hang_guard_.kill_hung(); }

void Driver::act(const action::AbortWorkers& a) {
  log_.write("abort_workers", {{"reason", a.reason}});
  children_.send(stop_message(control::Stop::ABORT, a.reason));
}

void Driver::act(const action::SendJoin& a) {
  log_.write("join", {{"generation", a.running.generation},
                      {"group_rank", a.running.generation > 0 ? a.running.group_rank : -1},
                      {"address", identity_.address},
                      {"hosting", a.hosting}});
  link_->send(to_message(a, spec_, identity_));
}

void Driver::act(const action::SendHeartbeat& a) { link_->send(to_message(a, children_.pids(spec_.nproc))); }

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

void Driver::act(const action::SendReady& a) {
  log_.write("ready", {{"generation", a.generation}});
  link_->send(to_message(a));
}

void Driver::act(const action::SendFinished& a) {
  log_.write("finished", {{"generation", a.generation}});
  view_.clear();
  link_->send(to_message(a));
}

void Driver::act(const action::SendLeave& a) {
  if (!a.soon) log_.write("leave", {{"signal", a.signal}});
  link_->send(to_message(a));
}

// The server does not report departures, so we look again and again until only this agent is left.
void Driver::act(const action::AwaitMembers& a) {
  if (!link_) return;  // we waited long enough
  if (link_->members() <= (a.is_member ? 1 : 0)) {
    events_.push_back(event::MembersLeft{});
  } else {
    loop_.call_at(Loop::Clock::now() + 20ms, [this, a] { act(a); });
  }
}

void Driver::act(const action::DropOutput&) { console_.drop(); }

void Driver::act(const action::Print& a) {
  log_.write("notice", {{"text", a.text}});
  if (a.again && shows_waiting()) return;
  if (a.error) failure_ = a.text;
  console_.tell_job(a.error ? console_.palette().error(a.text) : console_.palette().message(a.text));
}

void Driver::act(const action::TellNews& a) {
  log_.write("news", {{"kind", name_of(a.news.kind)}, {"node", a.news.host}, {"text", a.news.text}});
  console_.tell_job(console_.palette().message(a.text));
}

void Driver::act(const action::Report& a) {
  failure_ = failure_report(a.job, spec_.max_restarts);
  reporter_.tell(a.job);
}

void Driver::act(const action::End& a) {
  if (a.unreported) reporter_.tell_programs(*a.unreported);
  if (a.run && entry_) leave_word(*a.run);
  log_.write("end", {{"exit_code", a.exit_code}});
  exit_code_ = a.exit_code;
}

// For `dtrun status`, once the coordinator is gone.
void Driver::leave_word(const JobEnd& run) {
  entry_->finish({.job = {},
                  .ended_at = wall_seconds(),
                  .exit_code = run.exit_code,
                  .reason = run.reason,
                  .generation = state_.generation.number(),
                  .world_size = state_.generation.assignment.world_size,
                  .min_nodes = spec_.nodes.min,
                  .max_nodes = spec_.nodes.max,
                  .restarts = run.restart_count,
                  .max_restarts = spec_.max_restarts,
                  .membership_changes = run.membership_changes});
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
