// The order of events in a job, seen from here:
//
//   prepare        signals are watched, open files and MASTER_PORT are taken, the link is opened
//   loop           anything that happens (a message, a signal, a worker's output or end, a timer) becomes an
//                  event in the queue; decide() answers it with actions, carried out before the next event
//   workers        start, are told to leave and end: worker_runner.cc
//   End            the loop stops; the job's last processes are killed, the link closed, the terminal written
#include "agent/driver.h"

#include <signal.h>

#include <algorithm>
#include <system_error>

#include "agent/core/signal_use.h"
#include "agent/core/supervisor/notices.h"
#include "agent/local_address.h"
#include "agent/output/flush.h"
#include "agent/output/output_plan.h"
#include "agent/system/resource_limits.h"
#include "agent/system/termination_log.h"
#include "agent/text/report.h"
#include "proto/base/clock.h"
#include "proto/base/ids.h"
#include "rendezvous/identity/job_key.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

std::vector<std::filesystem::path> prepared_folders(const JobSpec& spec) {
  std::error_code ignored;  // prepare() reports it
  if (!spec.log_dir.empty()) std::filesystem::create_directories(run_dir(spec), ignored);
  return history_folders(spec);
}

// Absolute: a reader of the events has another working directory. Empty: the program is no trainer.
std::string output_dir_of(const JobSpec& spec) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr || trainer->output_dir.empty()) return "";
  std::error_code ignored;
  return std::filesystem::absolute(trainer->output_dir, ignored).string();
}

bool has_launcher(const JobSpec& spec) { return spec.output.remote && spec.output.remote->in_fd >= 0; }

// The name of a pod that is lost is known again with its successor, whenever that finds a machine.
Times times_of(const JobSpec& spec) {
  Times times = spec.times;
  if (spec.is_replaced) times.unknown_name = Times::Duration::max();
  return times;
}

Settings settings_of(const JobSpec& spec, const Link& link, const std::string& host) {
  Settings settings;
  settings.builtin = std::holds_alternative<BuiltinTrainer>(spec.program);
  settings.in_memory_recovery = in_memory_recovery(spec);
  settings.nproc = spec.nproc;
  settings.has_gpu_driver = !spec.gpu_reader.empty();
  settings.begin_together = spec.output.remote.has_value();
  settings.no_restart_exit_codes = spec.no_restart_exit_codes;
  settings.may_be_started_again = spec.may_be_started_again;
  settings.has_successor = std::holds_alternative<Candidates>(spec.rendezvous.hosting);
  settings.is_replaced = spec.is_replaced;
  settings.elastic = spec.nodes.min < spec.nodes.max;
  settings.endpoint = link.endpoint();
  settings.host = host;
  settings.join_timeout = spec.rendezvous.join_timeout.count();
  settings.keep_alive = spec.rendezvous.keep_alive_timeout.count();
  if (spec.rendezvous.read_timeout) settings.read_timeout = spec.rendezvous.read_timeout->count();
  settings.shutdown_timeout = spec.shutdown_timeout.count();
  settings.pause_limit = spec.times.pause.count();
  settings.without_coordinator = spec.times.without_coordinator.count();
  return settings;
}

}  // namespace

Driver::Driver(const JobSpec& spec, std::string tag, Watchdog& watchdog, Signals& signals)
    : spec_(spec),
      signals_(signals),
      console_(open_console()),
      view_(console_, spec.output.progress),
      log_(logs_, prepared_folders(spec), folder_in_use(spec), host_name(),
           [this](const std::string& why) { console_.error(why); }),
      reporter_(spec, host_name(), console_, log_, logs_),
      scratch_(watchdog.scratch(), temporary_),
      workers_(spec, std::move(tag), watchdog,
               {.loop = loop_,
                .console = console_,
                .view = view_,
                .log = log_,
                .logs = logs_,
                .scratch = scratch_,
                .state = state_},
               {.happened = [this](Event event) { events_.push_back(std::move(event)); },
                .begins =
                    [this] {
                      reporter_.remove_earlier();
                      log_.begin();
                    },
                .kv =
                    [this](int serial, const std::string& prefix, const control::KvRequest& request) {
                      if (link_) link_->kv(serial, prefix, request);
                    }}) {
  identity_.member_id = random_id();
  identity_.host = host_name();
}

Console& Driver::open_console() {
  const auto congestion = [this](bool congested) { workers_.pause_output(congested); };
  if (has_launcher(spec_)) return remote_console_.emplace(loop_, logs_, *spec_.output.remote, congestion);
  return own_console_.emplace(loop_, logs_, spec_.output.colour, congestion);
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
  begun ? finish() : flush();
  return *exit_code_;
}

void Driver::give_up(const Status& status) {
  failure_ = status.message();
  console_.error(failure_);
  exit_code_ = status.exit_code();
}

Status Driver::prepare() {
  signals_.watch(loop_, [this](int number) { from_signal(number); });
  if (has_launcher(spec_)) listen_to_launcher();
  ASSIGN_OR_RETURN(const std::size_t unauthenticated_files, allow_open_files(spec_.nproc, spec_.nodes.max));
  if (std::error_code error; !spec_.log_dir.empty()) {
    std::filesystem::create_directories(run_dir(spec_), error);
    if (error) {
      return Status(kExitCannotCreate, "--log_dir " + spec_.log_dir.string() + ": cannot create " +
                                           run_dir(spec_).string() + ": " + error.message());
    }
  }
  const bool workers_meet = std::holds_alternative<BuiltinTrainer>(spec_.program) && spec_.nproc > 1;
  if (workers_meet && spec_.nodes.max == 1 && !loopback_is_up())
    return Status(kExitOsError, "loopback is down, by which the workers of a node meet (ip link set lo up)");
  RETURN_IF_ERROR(hold_master_port());
  if (std::holds_alternative<ExternalProgram>(spec_.program)) (void)scratch_.make();  // its user tells
  ASSIGN_OR_RETURN(link_, Link::start(spec_.rendezvous, times_of(spec_), spec_.run_id, identity_.member_id,
                                      unauthenticated_files, scratch_, loop_,
                                      [this](auto event) { from_client(std::move(event)); },
                                      {.notice =
                                           [this](const std::string& line) {
                                             log_.write("notice", {{"text", line}});
                                             console_.notice(line);
                                           },
                                       .page = [this](const std::string& text) { tell_page(text); }}));
  const std::vector<int> ports = ports_of(spec_.rendezvous.hosting);
  if (link_->hosting() && !ports.empty() && link_->port() != ports.front())
    console_.notice("port " + std::to_string(ports.front()) + " is taken: the coordinator is at " +
                    link_->endpoint());
  state_ = initial_state(settings_of(spec_, *link_, identity_.host), millis_now());
  listen_to_events();
  log_.write("start", {{"run_id", spec_.run_id},
                       {"output_dir", output_dir_of(spec_)},
                       {"endpoint", link_->endpoint()},
                       {"device", spec_.device},
                       {"gpus", gpus_text(spec_.gpus)}});
  workers_.begin();
  return {};
}

// A program's output on a pipe is not disturbed: whoever reads it did not ask for a page.
void Driver::tell_page(const std::string& text) {
  log_.write("page", {{"text", text}});
  const bool builtin = std::holds_alternative<BuiltinTrainer>(spec_.program);
  if (builtin || console_.has_terminal()) console_.tell_job(console_.palette().message("watch: " + text));
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
  launcher_.emplace(
      loop_, spec_.output.remote->in_fd, spec_.times.launcher_silence,
      LauncherLine::Events{.told = [this](int number) { told_to_end(number); },
                           .alive = [this, alive] { remote_console_->send(alive); },
                           .input = [this](const std::string& text) { take_input(text); },
                           .shown = [this](std::size_t bytes) { remote_console_->shown(bytes); }});
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
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
    const bool ready = state_.takes_part();
    if (entry_ && std::exchange(entry_ready_, ready) != ready)
      temporary_.post([entry = entry_, ready] { entry->set_ready(ready); });
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
  if (!waiting_shown_) return waiting_timer_.cancel();
  waiting_timer_.set(Loop::Clock::now() + 1s, [this] { show_waiting(); });
}

void Driver::arm_timer() {
  const std::optional<Millis> due = next_deadline(state_);
  if (!due) return timer_.cancel();
  timer_.set(time_point_of(*due), [this] { events_.push_back(event::Tick{}); });
}

void Driver::finish() {
  view_.clear();
  workers_.rest();
  if (workers_.left_behind()) wait_for_left_behind();
  launcher_.reset();
  workers_.clear();
  close_link();
  view_.end();
  if (hook_) hook_->finish();
  tell_hooks_fault();
  temporary_.post([entry = std::move(entry_)] {});  // its file goes with it
  flush();
}

// The node of rank 0 tells of the job; before a node has a rank, each tells of itself.
void Driver::listen_to_events() {
  if (spec_.on_event.empty()) return;
  hook_.emplace(spec_.on_event);
  log_.set_listener([this](std::string_view event, const std::string& line) {
    const bool outside = state_.generation.number() == 0 && event == "news";
    if (state_.generation.assignment.group_rank != 0 || outside || !is_for_hook(event)) return;
    hook_->tell(line);
    tell_hooks_fault();
  });
}

void Driver::tell_hooks_fault() {
  const std::string fault = hook_ ? hook_->take_fault() : "";
  if (!fault.empty()) console_.notice(fault + "; the job goes on");
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
  while (workers_.left_behind() && loop_.run_once().ok()) {
    const bool again = was_told_to_end() && !state_.ending.told_just_now(millis_now());
    events_.clear();
    if (again) workers_.kill_left_behind("told to end at once");
  }
}

// For use while no event is decided on any more.
bool Driver::was_told_to_end() const {
  return std::ranges::any_of(events_,
                             [](const Event& event) { return std::holds_alternative<event::Signal>(event); });
}

void Driver::flush() {
  events_.clear();
  agent::flush(loop_, console_, {&logs_, &temporary_}, spec_.times.flush,
               [this] { return was_told_to_end(); });
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
    if (!entry_) enter_in_registry();
    events_.push_back(event::Connected{link_->endpoint()});
  } else if (auto* received = std::get_if<rendezvous::Received>(&event)) {
    if (received->message.has_trace()) return answer(received->message.trace());
    if (received->message.has_job_end() && remote_console_) {
      launch::FromHost over;
      over.mutable_over();
      remote_console_->send(over);
    }
    if (auto known = to_event(received->message, spec_)) events_.push_back(std::move(*known));
  } else if (auto* lost = std::get_if<rendezvous::Disconnected>(&event)) {
    log_.write("disconnected", {{"why", lost->why.message()}, {"attempt", lost->attempt}});
    events_.push_back(event::Disconnected{.why = lost->why.message(),
                                          .permanent = lost->permanent,
                                          .exit_code = lost->why.exit_code(),
                                          .silent = lost->silent,
                                          .refused = lost->refused});
  } else if (auto* done = std::get_if<rendezvous::KvDone>(&event)) {
    workers_.reply(done->worker_serial, std::move(done->reply));
  }
}

void Driver::enter_in_registry() {
  const auto& key = spec_.rendezvous.key;
  const RegisteredJob job{.run_id = spec_.run_id,
                          .host = link_->host(),
                          .port = link_->port(),
                          .pid = getpid(),
                          .node = identity_.host,
                          .has_key = key != nullptr,
                          .key = key && spec_.output.remote ? key->text() : ""};
  auto [entry, notice] = agent::enter_in_registry(temporary_, job);
  entry_ = std::move(entry);
  if (!notice.empty()) console_.notice(notice);
}

// At once, since the answer also tells what this host's clock shows. It decides nothing.
void Driver::answer(const rendezvous::v1::TraceOrder& order) {
  rendezvous::v1::FromAgent message;
  message.set_generation(state_.generation.number());
  *message.mutable_trace_part() = workers_.trace(order);
  link_->send(message);
}

void Driver::told_to_end(int number) {
  log_.write("signal", {{"signal", describe_signal(number)}});
  events_.push_back(event::Signal{number});
}

void Driver::from_signal(int number) {
  if (number == SIGCHLD) return workers_.reap();
  switch (use_of_signal(number, spec_)) {
    case SignalUse::kEnds:
      return told_to_end(number);
    case SignalUse::kForWorkers:
      return workers_.pass_on(number);
    case SignalUse::kStops:
      workers_.pass_on(SIGSTOP);
      return stop_self();
    case SignalUse::kNone:
      return;
  }
}

// ---- what to do

void Driver::act(const action::Recovered& a) {
  log_.write("recovered", {{"generation", state_.generation.number()},
                           {"first_step", a.first_step},
                           {"kept", a.kept},
                           {"replaced", a.replaced},
                           {"from_in_memory_checkpoint", a.from_in_memory_checkpoint},
                           {"milliseconds", a.took}});
}

void Driver::act(const action::SendJoin& a) {
  log_.write("join", {{"generation", a.running.generation},
                      {"group_rank", a.running.generation > 0 ? a.running.group_rank : -1},
                      {"address", identity_.address},
                      {"hosting", a.hosting}});
  link_->send(to_message(a, spec_, identity_));
}

void Driver::act(const action::SendHeartbeat& a) {
  link_->send(to_message(a, workers_.pids(), workers_.reports()));
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
  const std::string text = a.error ? console_.palette().error(a.text) : console_.palette().message(a.text);
  a.of_node ? console_.say(text) : console_.tell_job(text);
}

void Driver::act(const action::TellNews& a) {
  log_.write("news", {{"kind", name_of(a.news.kind)}, {"node", a.news.host}, {"text", a.news.text}});
  console_.tell_job(console_.palette().message(a.text));
}

void Driver::act(const action::TellVerdict& a) {
  log_.write("straggler", {{"generation", state_.generation.number()},
                           {"rank", a.verdict.rank >= 0 ? EventLog::Value(a.verdict.rank) : nullptr},
                           {"cause", a.verdict.cause},
                           {"loss", a.verdict.loss},
                           {"text", a.verdict.text}});
}

void Driver::act(const action::Report& a) {
  failure_ = failure_report(a.job, spec_.max_restarts);
  reporter_.tell(ended(a.job));
}

void Driver::act(const action::End& a) {
  if (a.unreported) reporter_.tell_programs(ended(*a.unreported));
  if (a.run && a.run->exit_code == kExitOk) reporter_.tell_programs(ended(*a.run));
  if (a.run && entry_)  // for `dtrun status`, once the coordinator is gone
    temporary_.run([entry = entry_, end = ended(*a.run)] { entry->finish(end); });
  const std::string reason = a.run ? a.run->reason : "";
  if (a.run && a.run->goodput.total() > 0)
    log_.write("end", {{"exit_code", a.exit_code}, {"reason", reason}, {"goodput", a.run->goodput.ratio()}});
  else
    log_.write("end", {{"exit_code", a.exit_code}, {"reason", reason}});
  if (a.exit_code == kExitUnavailable && !spec_.doctor.empty())
    console_.notice("to find out what keeps the nodes apart, on every node: " + spec_.doctor);
  exit_code_ = a.exit_code;
}

EndedJob Driver::ended(const JobEnd& run) const {
  return {.job = {.run_id = spec_.run_id},
          .ended_at = wall_seconds(),
          .end = run,
          .generation = state_.generation.number(),
          .world_size = state_.generation.assignment.world_size,
          .min_nodes = spec_.nodes.min,
          .max_nodes = spec_.nodes.max,
          .max_restarts = spec_.max_restarts};
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
