// The order of events in a worker's life, seen from here:
//
//   StartWorkers, WarmUp   the last generation's workers are forgotten, the new ones spawned and watched for
//                          hangs
//   a message              answered here, or an event
//   it ends                SIGCHLD: its group is killed, it is reaped, processes that left its group are
//                          killed, its output is read to the end; only then WorkerExited
#include "agent/worker_runner.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>

#include "agent/core/gpu_use.h"
#include "agent/core/supervisor/outcome.h"
#include "agent/health/last_operations.h"
#include "agent/system/own_environment.h"
#include "agent/text/report.h"
#include "agent/wire.h"
#include "proto/core/contract.h"
#include "proto/core/utf8.h"
#include "proto/wire/training.h"

namespace dtrun::agent {
namespace {

constexpr std::chrono::milliseconds kHeartbeatFileLook{500};
constexpr std::size_t kMostOfLine = 160;  // bytes
constexpr int kNoWorker = -1;             // a request of this agent's own: no worker's serial number

// The PCI address of the worker's GPU; empty if it is not known.
std::string gpu_of(const JobSpec& spec, int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < spec.gpus.size() ? spec.gpus[index].pci : "";
}

}  // namespace

WorkerRunner::WorkerRunner(const JobSpec& spec, std::string tag, Watchdog& watchdog, Agent agent,
                           Events events)
    : spec_(spec),
      trainer_(std::get_if<BuiltinTrainer>(&spec.program)),
      agent_(agent),
      events_(std::move(events)),
      planner_(spec, own_environment(), tag, agent.logs, agent.scratch),
      children_(std::move(tag), watchdog),
      hang_guard_(agent.loop,
                  hang_settings(spec.heartbeat_timeout.count(), spec.stall_timeout.count(),
                                spec.notice_after ? std::optional(spec.notice_after->count()) : std::nullopt,
                                trainer_ != nullptr, spec.shutdown_timeout.count()),
                  own_environment(), hang_view()),
      gpu_guard_(agent.loop, spec.gpu_reader, own_environment(), "/dev/kmsg",
                 [this](pid_t pid) { children_.spare(pid); }),
      trace_session_(agent.loop) {}

rendezvous::v1::TracePart WorkerRunner::trace(const rendezvous::v1::TraceOrder& order) {
  return trace_session_.answer(order, children_.workers());
}

HangGuard::View WorkerRunner::hang_view() {
  HangGuard::View view;
  view.workers = [this] { return children_.workers(); };
  view.usages = [this]() -> const std::map<pid_t, WorkerUsage>& {
    return usages_.look(pids(), Loop::Clock::now());
  };
  // Signs of life and stacks are files, too: a file system that hangs is waited for.
  view.matters = [this] {
    return hangs_matter(agent_.state) && agent_.logs.run([] {}) && agent_.scratch.answers();
  };
  view.held_back = [this] { return congested_ || children_.any_paused(); };
  view.silence_tells = [this] { return silence_tells(agent_.state); };
  view.spares_victims = [this] { return agent_.state.workers_outlive(); };
  view.compare = [this](std::uint64_t mine, std::chrono::milliseconds patience, auto done) {
    const Assignment& at = agent_.state.generation.assignment;
    if (at.node_count < 2) return false;
    const auto ask = [this, store = store_of(at.generation)](const control::KvRequest& request) {
      events_.kv(kNoWorker, store, request);
    };
    const std::uint64_t first =
        std::exchange(next_request_, next_request_ + static_cast<std::uint64_t>(at.node_count));
    exchange_.emplace(ask, first, at.group_rank, at.node_count, mine, patience, std::move(done));
    return true;
  };
  view.tell = [this](const std::string& text) { tell_people(text); };
  view.found = [this](std::vector<WorkerOutcome> hung) {
    for (const WorkerOutcome& one : hung)
      agent_.log.write("hang",
                       {{"rank", one.rank}, {"pid", one.pid}, {"what", one.error}, {"where", one.where}});
    events_.happened(
        event::HangFound{.generation = agent_.state.generation.number(), .hung = std::move(hung)});
  };
  return view;
}

void WorkerRunner::pause_output(bool paused) {
  congested_ = paused;
  children_.pause_output(paused);
}

void WorkerRunner::tell_people(const std::string& text) {
  agent_.log.write("notice", {{"text", text}});
  agent_.console.notice(text);
}

std::string WorkerRunner::store_of(std::int64_t generation) const {
  return spec_.run_id + "/" + std::to_string(generation) + "/";
}

void WorkerRunner::reply(int serial, control::KvReply reply) {
  if (serial == kNoWorker) return exchange_ ? exchange_->take(reply) : void();
  WorkerProcess* worker = children_.find(serial);
  if (worker == nullptr) return;
  control::FromAgent message;
  *message.mutable_kv() = std::move(reply);
  worker->send(message);
}

std::vector<WorkerReport> WorkerRunner::reports() {
  const auto now = Loop::Clock::now();
  oom_.forget_old(now);
  const auto& usages = usages_.look(pids(), now);
  const GpuReading& gpus = gpu_guard_.look_now_and_then(now);
  std::vector<WorkerReport> reports(static_cast<std::size_t>(spec_.nproc));
  for (const WorkerProcess* worker : children_.workers()) {
    WorkerReport& report = reports[static_cast<std::size_t>(worker->local_rank())];
    report = worker->signs().report();
    if (worker->generation() == agent_.state.generation.number()) report.rank = worker->rank();
    const auto quiet = hang_guard_.quiet().find(worker->local_rank());
    if (quiet != hang_guard_.quiet().end()) report.quiet = quiet->second;
    const auto index = static_cast<std::size_t>(worker->local_rank());
    if (index < spec_.gpus.size()) report.gpu = use_of(spec_.gpus[index], gpus);
    const auto usage = usages.find(worker->pid());
    if (usage == usages.end()) continue;
    report.usage = usage->second;
    report.usage->output_age = worker->output().age(now);
    report.usage->last_line = printable(worker->output().last_line().substr(0, kMostOfLine));
  }
  return reports;
}

void WorkerRunner::rest() {
  heartbeat_timer_.cancel();
  hang_guard_.rest();
  gpu_guard_.rest();
}

void WorkerRunner::clear() {
  children_.clear();
  children_.sweep();
  children_.kill_unknown_children();
}

// ---- they start

void WorkerRunner::act(const action::StartWorkers& a) {
  agent_.log.write("start_workers", {{"generation", a.assignment.generation},
                                     {"group_rank", a.assignment.group_rank},
                                     {"world_size", a.assignment.world_size},
                                     {"restart_count", a.assignment.restart_count},
                                     {"reason", a.assignment.reason}});
  children_.kill_left_behind("the workers are started again");
  children_.forget_ended();
  if (children_.empty()) children_.kill_unknown_children();
  agent_.view.begin({.generation = a.assignment.generation, .world_size = a.assignment.world_size});
  killed_ = false;
  usages_.rest(Loop::Clock::now());
  spawn(a.spawn);
}

void WorkerRunner::act(const action::WarmUp& a) {
  children_.forget_ended();
  spawn(a.spawn);
}

void WorkerRunner::spawn(const std::vector<action::Spawn>& workers) {
  if (folder_in_use(spec_).empty()) begin_history();
  const Assignment& assignment = agent_.state.generation.assignment;
  for (const action::Spawn& one : workers)
    start(one.serial, planner_.plan(agent_.console, assignment, one.serial, one.local_rank, one.rank));
  hang_guard_.watch();
  if (trainer_ == nullptr && !heartbeat_timer_.is_set()) look_at_heartbeat_files();
}

void WorkerRunner::start(int serial, WorkerPlan plan) {
  const int rank = plan.rank;
  const std::int64_t generation = plan.generation;
  WorkerProcess::Callbacks callbacks;
  callbacks.message = [this, serial](const control::FromWorker& message) {
    said(*children_.find(serial), serial, message);
  };
  callbacks.exited = [this, serial](bool well) { return let_end(*children_.find(serial), well); };
  callbacks.ended = [this, serial](WorkerOutcome outcome, bool never_ran) {
    ended(serial, std::move(outcome), never_ran);
  };
  WorkerProcess& worker = children_.add(
      serial,
      std::make_unique<WorkerProcess>(agent_.loop, agent_.console, std::move(plan), std::move(callbacks)));
  worker.start();
  if (worker.pid() > 0) {
    agent_.log.write("worker_started", {{"generation", generation}, {"rank", rank}, {"pid", worker.pid()}});
  }
}

void WorkerRunner::act(const action::AwaitGpus&) {
  gpu_guard_.when_free([this](const std::string& note) { events_.happened(event::GpusFree{.note = note}); });
}

// A worker keeps the number before its lines while its node has fewer workers, and so others, than usual.
void WorkerRunner::act(const action::PlaceWorker& a) {
  WorkerProcess* worker = children_.find(a.serial);
  const Assignment& assignment = agent_.state.generation.assignment;
  if (worker == nullptr) return;
  agent_.log.write("place_worker",
                   {{"generation", assignment.generation}, {"rank", a.rank}, {"pid", worker->pid()}});
  trace_session_.part_with(*worker);
  worker->set_place(assignment.generation, a.rank, a.index == 0);
  if (assignment.node.nproc == spec_.nproc)
    worker->output().set_prefix(planner_.prefix(a.rank, worker->local_rank()));
  worker->send(start_message(assignment, a.rank, a.index));
}

// ---- they speak

void WorkerRunner::said(WorkerProcess& worker, int serial, const control::FromWorker& message) {
  using Body = control::FromWorker;
  switch (message.body_case()) {
    case Body::kHello:
      return greet(worker, serial, message.hello());
    case Body::kKv:
      return events_.kv(serial, store_of(worker.generation()), message.kv());
    case Body::kProgress:
      worker.signs().set_pulse(message.pulse());
      worker.signs().set_collectives(message.has_collectives() ? std::optional(message.collectives())
                                                               : std::nullopt);
      return progressed(worker, from_wire(message.progress()));
    case Body::kReady:
      agent_.log.write("worker_ready", {{"generation", worker.generation()},
                                        {"rank", worker.rank()},
                                        {"pid", worker.pid()},
                                        {"step", message.ready().has_step() ? message.ready().step() : -1},
                                        {"error", printable_lines(message.ready().error())}});
      return events_.happened(to_event(serial, message.ready()));
    case Body::kCompletion: {
      Completion completion = from_wire(message.completion());
      for (std::string* text : {&completion.model_path, &completion.params_sha256})
        *text = printable_lines(*text);
      return events_.happened(event::WorkerCompleted{std::move(completion)});
    }
    case Body::kFault:
      return worker.set_error(printable_lines(message.fault().message()), message.fault().final());
    case Body::BODY_NOT_SET:
      return;
  }
}

// A program of another version may report its progress all the same.
void WorkerRunner::greet(WorkerProcess& worker, int serial, const control::Hello& hello) {
  const bool same = hello.protocol() == kControlProtocol;
  const std::string versions = "(control protocol " + std::to_string(kControlProtocol) + " and " +
                               std::to_string(hello.protocol()) + ")";
  if (trainer_ != nullptr && same)
    return worker.send(job_message(*trainer_, spec_.gpus, worker.local_rank(), worker.memory()));
  if (trainer_ != nullptr)
    return worker.condemn("dtrun and dtrun-worker are of different versions " + versions +
                          ": install both from one build");
  if (!same)
    tell_people("dtrun and the worker kit of " + worker.name() + " are of different versions " + versions +
                ": it does not outlive its peers");
  const int unit = std::max(1, hello.unit());
  const bool may = agent_.state.settings.in_memory_recovery && spec_.nproc % unit == 0;
  const bool outlives = same && hello.outlives() && may;
  if (outlives) events_.happened(event::WorkerOutlives{.serial = serial, .unit = unit});
  worker.send(
      hello_ack(outlives, unit > 1 ? unit_file(worker.local_rank() - worker.local_rank() % unit) : ""));
}

// A unit's workers are started at once, so the number of its first process is theirs alone.
std::string WorkerRunner::unit_file(int first) const {
  const int serial = agent_.state.workers.all[static_cast<std::size_t>(first)].serial;
  return agent_.scratch.make().ok() ? agent_.scratch.path() / ("unit-" + std::to_string(serial)) : "";
}

// One worker speaks for those of its node, but where each counts.
// The writer of a folder that was in use may be of another run, which keeps a worker of ours from training.
void WorkerRunner::begin_history() {
  if (!std::exchange(begun_, true)) events_.begins();
}

void WorkerRunner::progressed(WorkerProcess& worker, const Progress& progress) {
  if (progress.phase == Progress::Phase::kTraining) begin_history();
  worker.signs().set_report({.step = progress.step, .times = progress.step_times});
  if (worker.leads())
    events_.happened(event::Progressed{.progress = progress, .generation = worker.generation()});
  if (worker.rank() == 0 && agent_.state.progresses(worker.generation())) agent_.view.update(progress);
}

// ---- they are told to leave

void WorkerRunner::act(const action::PauseWorkers& a) {
  agent_.log.write("pause_workers", {{"after_step", a.after_step}, {"reason", a.reason}});
  children_.send(stop_message(a.after_step ? control::Stop::PAUSE_AFTER_STEP : control::Stop::PAUSE, a.reason,
                              a.leaves));
}

void WorkerRunner::act(const action::EndWorker& a) {
  agent_.log.write("end_worker", {{"serial", a.serial}, {"last", a.last}, {"rank", a.rank}});
  if (WorkerProcess* worker = children_.find(a.serial)) worker->send(end_message(a));
}

void WorkerRunner::act(const action::AbortWorkers& a) {
  agent_.log.write("abort_workers", {{"reason", a.reason}});
  children_.send(stop_message(control::Stop::ABORT, a.reason));
}

void WorkerRunner::act(const action::SignalWorkers& a) {
  agent_.log.write("signal_workers", {{"signal", describe_signal(a.number)}});
  hang_guard_.rest();
  killed_ = killed_ || a.number == SIGKILL;
  if (a.number == SIGKILL && !a.only) children_.kill_left_behind("the workers are killed too");
  if (!a.only) return children_.signal_groups(a.number);
  if (WorkerProcess* worker = children_.find(*a.only)) worker->signal_group(a.number);
}

void WorkerRunner::act(const action::LookAtWorkers& a) { hang_guard_.look(a.limit); }

void WorkerRunner::act(const action::KillHung&) { hang_guard_.kill_hung(); }

void WorkerRunner::look_at_heartbeat_files() {
  if (agent_.scratch.answers())
    for (WorkerProcess* worker : children_.workers())
      if (const auto progress = worker->look_at_heartbeat_file()) progressed(*worker, from_wire(*progress));
  heartbeat_timer_.set(Loop::Clock::now() + kHeartbeatFileLook, [this] { look_at_heartbeat_files(); });
}

// ---- they end

bool WorkerRunner::let_end(const WorkerProcess& worker, bool well) {
  const Children::Tell tell = [this](const std::string& text) { tell_people(text); };
  const LeftBehindFate fate = fate_of_left_behind(agent_.state, well, millis_now());
  if (fate.until) return children_.let_end(agent_.loop, worker, time_point_of(*fate.until), tell);
  children_.sweep(worker, fate.told ? tell : nullptr);
  return false;
}

void WorkerRunner::ended(int serial, WorkerOutcome outcome, bool never_ran) {
  note_cause(&outcome);
  gpu_guard_.ended(outcome.pid);
  WorkerProcess& worker = *children_.find(serial);
  if (agent_.scratch.answers())
    if (const auto last = worker.look_at_heartbeat_file()) progressed(worker, from_wire(*last));
  if (!outcome.ok() && !ended_as_told(outcome, agent_.state))
    agent_.logs.post([folder = worker.log_dir(), operations = worker.operations()] {
      write_last_operations(folder, operations);
    });
  trace_session_.part_with(worker);
  agent_.log.write("worker_ended", {{"generation", worker.generation()},
                                    {"rank", outcome.rank},
                                    {"pid", outcome.pid},
                                    {"how", describe_exit(outcome.exit_code, outcome.signal, outcome.cause)},
                                    {"error", outcome.error}});
  events_.happened(
      event::WorkerExited{.serial = serial, .outcome = std::move(outcome), .never_ran = never_ran});
}

// A SIGKILL that this agent did not send may be the kernel's, for lack of memory. A worker that fails
// otherwise may have lost a process of its own to the kernel: the program behind a shell, a loader of data.
void WorkerRunner::note_cause(WorkerOutcome* outcome) {
  if (killed_ || outcome->cause != EndCause::kUnknown || outcome->ok()) return;
  const bool killed = outcome->signal == SIGKILL ? oom_.killed(outcome->pid) : oom_.killed_another();
  if (killed) outcome->cause = EndCause::kOutOfMemory;
}

void WorkerRunner::act(const action::AskGpu& a) {
  gpu_guard_.explain(gpu_of(spec_, a.local_rank), [this, serial = a.serial](std::string trouble) {
    if (!trouble.empty()) agent_.log.write("gpu_trouble", {{"text", trouble}});
    events_.happened(event::GpuFound{.serial = serial, .trouble = std::move(trouble)});
  });
}

}  // namespace dtrun::agent
