// Remote shells, signals, the terminal's input and timers become events in a queue; the core
// (cmd/launch/core/launch.h) gets one after the other, and its actions are carried out before the next.
#include "cmd/launch/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "agent/job_registry.h"
#include "agent/output/flush.h"
#include "agent/output/terminal_console.h"
#include "agent/system/loop.h"
#include "agent/system/resource_limits.h"
#include "agent/system/signals.h"
#include "cmd/check/build.h"
#include "cmd/launch/clean.h"
#include "cmd/launch/core/repeats.h"
#include "cmd/launch/detached_runs.h"
#include "cmd/launch/input_feed.h"
#include "cmd/launch/own_files.h"
#include "cmd/launch/remote_shell.h"
#include "cmd/options/values.h"
#include "proto/base/clock.h"
#include "proto/core/contract.h"
#include "proto/core/text.h"
#include "proto/core/utf8.h"
#include "rendezvous/wire/grpc_setup.h"

namespace dtrun::cmd {
namespace {

using agent::Console;
using agent::Loop;
using agent::millis_now;
using namespace std::chrono_literals;

// Signs of life, and looks for hosts that gave none, within Times::launcher_silence.
constexpr int kSigns = 12;
constexpr auto kFirstSigns = 2s;     // between them until the job runs: a quiet host is reported soon
constexpr double kClocksDiffer = 2;  // seconds
// Of one host's output: how much is shown before the host hears of it, and how much a host never sends before
// it has heard, in bytes.
constexpr std::size_t kPortion = 256u << 10, kMostUnsettled = 4u << 20;

// The words before the host, as a user types them.
std::string shell_of(const LaunchPlan& plan) {
  std::vector<std::string> words;
  for (const std::string& word : plan.ssh) words.push_back(shell_word(word));
  return join(words, " ");
}

class Launcher {
 public:
  Launcher(LaunchPlan plan, agent::Signals& signals)
      : plan_(std::move(plan)),
        console_(loop_, disk_, plan_.output.colour, [this](bool congested) { hold_back(congested); }),
        build_(own_build()),
        state_(initial_launch(plan_.settings)),
        lines_(plan_.hosts.size()) {
    signals.watch(loop_, [this](int number) { from_signal(number); });
  }

  int run();
  bool all_ended() const {
    return std::ranges::all_of(state_.hosts, [](const auto& h) { return h.phase == HostPhase::kEnded; });
  }

 private:
  // The facts on one host beside the decided state.
  struct HostConnection {
    std::unique_ptr<RemoteShell> shell;
    launch::Planned planned;
    double clock_ahead = 0;  // of ours, seconds; less than the login took is nothing
    std::string bar;
    std::size_t unsettled = 0;  // bytes of output that the host does not know to be shown
  };

  HostConnection& line(int host) { return lines_[static_cast<std::size_t>(host)]; }
  const Host& host(int index) const { return plan_.hosts[static_cast<std::size_t>(index)]; }
  const std::string& name(int index) const { return plan_.settings.hosts[static_cast<std::size_t>(index)]; }

  void drain();
  void arm_timer();
  void tend();
  void from_signal(int number);
  void from_host(int host, launch::FromHost message);
  void show(int host, const launch::Said& said);
  void take_input(std::string text);
  void seen(int host, const launch::Seen& seen);
  void greeted(int host, const launch::Hello& hello);
  void gone(int host, int exit_status);
  void lose(int host, const SshFailure& failure);
  void ask_for_key(int host, SshFailure failure);

  void act(const launch_action::Dial& a);
  void act(const launch_action::SendJob& a);
  void act(const launch_action::AskToLook& a);
  void act(const launch_action::TellBegin& a);
  void act(const launch_action::PassSignal& a);
  void act(const launch_action::HangUp& a);
  void act(const launch_action::Say& a);
  void act(const launch_action::TellCheck& a);
  void act(const launch_action::Remember& a);
  void act(const launch_action::TellDetached& a);
  void act(const launch_action::Finish& a) { exit_code_ = a.exit_code; }

  // The words of the command line: to `host`, to run `script` (empty: `dtrun agent`) there.
  std::vector<std::string> words_to(int host, const std::string& script) const;
  // What was read of our input is gone, where an agent is started again.
  bool gives_input(int host) const {
    return plan_.gives_input && host == state_.first && !state_.hosts[static_cast<std::size_t>(host)].again;
  }
  void show_progress();
  void show_output(int host, const launch::Output& output);
  void settle(HostConnection& one);
  void hold_back(bool congested);
  void retire(std::unique_ptr<RemoteShell> shell) {
    if (!shell) return;
    shell->abandon();
    retired_.push_back(std::move(shell));
  }

  const LaunchPlan plan_;
  Loop loop_;
  agent::Disk disk_{loop_};
  agent::TerminalConsole console_;
  const std::string build_;
  std::shared_ptr<const std::string> archive_;
  LaunchState state_;
  std::vector<HostConnection> lines_;
  std::vector<std::unique_ptr<RemoteShell>> retired_;  // may be on the stack: destroyed between two events
  std::deque<LaunchEvent> events_;
  bool congested_ = false;  // our output has no reader
  std::optional<InputFeed> input_;
  agent::Timer timer_{loop_}, life_timer_{loop_};
  RepeatedWords said_;
  std::shared_ptr<agent::JobEntry>
      entry_;  // used by disk_ alone; so that `dtrun status` finds the job from here
  std::optional<int> exit_code_;
};

int Launcher::run() {
  agent::allow_all_open_files();
  events_.push_back(launch_event::Begin{});
  tend();
  drain();
  while (!exit_code_) {
    arm_timer();
    if (Status status = loop_.run_once(); !status.ok()) {
      console_.error(status.message());
      return status.exit_code();
    }
    drain();
  }
  console_.set_bar("");
  if (*exit_code_ == kExitUnavailable && !plan_.doctor.empty())
    console_.notice("to find out what keeps the hosts apart: " + plan_.doctor);
  // The agents close their ends; a remote shell that does not end is ended with us.
  disk_.post([entry = std::move(entry_)] {});  // its file goes with it
  agent::flush(loop_, console_, {&disk_}, plan_.times.flush, [this] {
    events_.clear();
    return false;
  });
  return *exit_code_;
}

void Launcher::drain() {
  while (!events_.empty() && !exit_code_) {
    const LaunchEvent event = std::move(events_.front());
    events_.pop_front();
    for (const LaunchAction& action : decide(state_, event, millis_now()))
      std::visit([this](const auto& a) { act(a); }, action);
  }
  retired_.clear();  // before one of them ends, which would be taken for the end of the line's present one
  show_progress();
}

void Launcher::arm_timer() {
  const std::optional<Millis> due = next_deadline(state_);
  if (!due) return timer_.cancel();
  timer_.set(agent::time_point_of(*due), [this] { events_.push_back(launch_event::Tick{}); });
}

// Sends every agent a sign of life, and checks for agents that have been silent.
void Launcher::tend() {
  launch::ToHost alive;
  alive.mutable_alive();
  launch_event::Quiet quiet{.hosts = {}};
  const Times::Duration silence = plan_.times.launcher_silence, sign = silence / kSigns;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    RemoteShell* const shell = lines_[i].shell.get();
    if (shell == nullptr) continue;
    if (shell->silent_for(std::chrono::milliseconds(kQuiet))) quiet.hosts.push_back(static_cast<int>(i));
    if (state_.hosts[i].phase < HostPhase::kPlanning) continue;
    shell->send(alive);
    if (!shell->silent_for(silence)) continue;
    retire(std::move(lines_[i].shell));
    lose(static_cast<int>(i), {.what = "silent for " + seconds_text(silence.count()), .remedy = ""});
  }
  if (!quiet.hosts.empty()) events_.push_back(std::move(quiet));
  const auto next = state_.begun ? sign : std::min<Times::Duration>(kFirstSigns, sign);
  life_timer_.set(Loop::Clock::now() + next, [this] { tend(); });
}

void Launcher::from_signal(int number) {
  switch (number) {
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return events_.push_back(launch_event::Told{number});
    case SIGUSR1:
    case SIGUSR2:
      for (int i = 0; i < static_cast<int>(lines_.size()); ++i) act(launch_action::PassSignal{i, number});
      return;
    case SIGTSTP:  // agents would miss us
      return console_.notice("cannot be suspended: the hosts need to hear from here");
    default:
      return;
  }
}

void Launcher::from_host(int host, launch::FromHost message) {
  clean(&message);
  using Body = launch::FromHost;
  switch (message.body_case()) {
    case Body::kHello:
      return greeted(host, message.hello());
    case Body::kPlanned:
      // The others know an agent that is started again by the first one's port.
      if (!state_.begun) line(host).planned = message.planned();
      for (const std::string& notice : message.planned().notices())
        if (said_.is_new(host, notice, millis_now())) console_.notice(with_indent(notice));
      return events_.push_back(launch_event::Planned{
          .host = host,
          .addresses = {message.planned().addresses().begin(), message.planned().addresses().end()},
          .port = message.planned().port()});
    case Body::kRefused:
      return events_.push_back(launch_event::Refused{.host = host,
                                                     .exit_code = message.refused().exit_code(),
                                                     .why = with_indent(message.refused().why())});
    case Body::kSeen:
      return seen(host, message.seen());
    case Body::kOutput:
      return show_output(host, message.output());
    case Body::kSaid:
      return show(host, message.said());
    case Body::kBar:
      line(host).bar = message.bar().text();
      return;
    case Body::kEnded:
      return events_.push_back(launch_event::Ended{.host = host, .exit_code = message.ended().exit_code()});
    case Body::kBegun:
      if (!input_ && gives_input(host))
        input_.emplace(loop_, STDIN_FILENO, [this](std::string text) { take_input(std::move(text)); });
      return events_.push_back(launch_event::Begun{host});
    case Body::kOver:
      return events_.push_back(launch_event::Over{host});
    case Body::kTaken:
      if (input_ && host == state_.first) input_->taken(message.taken().bytes());
      return;
    case Body::kAlive:
    case Body::BODY_NOT_SET:
      return;
  }
}

// A line on the whole job is shown once, a line on one host with the host's name.
void Launcher::show(int host, const launch::Said& said) {
  if (!said.of_job()) return console_.say(name(host) + ": " + with_indent(said.text()));
  if (said_.is_new(host, said.text(), millis_now())) console_.say(with_indent(said.text()));
}

void Launcher::take_input(std::string text) {
  RemoteShell* const shell = line(*state_.first).shell.get();
  if (shell == nullptr) return;
  launch::ToHost message;
  message.mutable_input()->set_text(std::move(text));
  shell->send(message);
}

void Launcher::seen(int host, const launch::Seen& seen) {
  launch_event::Seen event{.host = host, .results = {}};
  for (const launch::ProbeResult& one : seen.results())
    event.results.push_back({.address = one.address(),
                             .from = one.from(),
                             .why_not = {one.why_not().begin(), one.why_not().end()}});
  events_.push_back(std::move(event));
}

void Launcher::greeted(int host, const launch::Hello& hello) {
  line(host).clock_ahead = hello.time() - wall_seconds();
  events_.push_back(launch_event::Answered{
      .host = host, .same_build = hello.protocol() == kLaunchProtocol && hello.build() == build_});
}

// An unknown host key is worth a second call of ssh, which shows the key.
void Launcher::gone(int index, int exit_status) {
  RemoteShell* const shell = line(index).shell.get();
  SshFailure failure =
      ssh_failure(exit_status, clean_lines(shell->standard_error()), host(index), shell_of(plan_));
  if (shell->greeted() && shell->standard_error().empty()) {
    const bool by_signal = exit_status > 128 && exit_status < 128 + NSIG;  // ssh's own failures are 255
    failure = {.what = std::string(plan_.is_ssh ? "ssh" : "its remote shell") + " ended with " +
                       describe_exit(exit_status, by_signal ? exit_status - 128 : 0),
               .remedy = ""};
  }
  // ssh ends with its shell's exit code, or with 255 for a fault of its own.
  if (!shell->greeted() && plan_.is_ssh && failure.kind == SshFailure::kOther && exit_status < 128)
    failure = {.what = "logged in, but its shell ended with exit code " + std::to_string(exit_status) +
                       " before an agent ran (" + failure.what + ")",
               .remedy = "look at the startup files of its shell; try the same by hand: " +
                         plan_.settings.logins[static_cast<std::size_t>(index)]};
  retire(std::move(line(index).shell));
  if (failure.kind == SshFailure::kUnknownHostKey && plan_.is_ssh) return ask_for_key(index, failure);
  lose(index, failure);
}

void Launcher::lose(int index, const SshFailure& failure) {
  events_.push_back(launch_event::Gone{.host = index, .failure = failure});
}

void Launcher::ask_for_key(int index, SshFailure failure) {
  RemoteShell::Events events;
  events.said = [](const auto&) {};
  events.complained = events.babbled = [](std::string_view) {};
  events.ended = [this, index, failure](int) mutable {
    const std::string key = host_key_seen(line(index).shell->standard_error());
    if (!key.empty()) failure.what += " It shows " + key;
    retire(std::move(line(index).shell));
    events_.push_back(launch_event::Gone{.host = index, .failure = failure});
  };
  std::vector<std::string> words = words_to(index, "true");
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(plan_.ssh.size()), "-v");
  auto shell = RemoteShell::start(loop_, words, std::move(events));
  if (!shell.ok()) return events_.push_back(launch_event::Gone{.host = index, .failure = failure});
  line(index).shell = std::move(shell).value();
  line(index).shell->finish_input();
}

// ---- actions

// ssh gives one line to the login shell there; other remote shells run words as they are. If an option has
// several values ssh takes the first, so the words of --ssh go before ours, and ours before the user's files:
// a job gets neither the user's agent nor a port of a configuration that is for interactive logins.
std::vector<std::string> Launcher::words_to(int index, const std::string& script) const {
  std::vector<std::string> words = plan_.ssh;
  if (plan_.is_ssh) {
    words.emplace_back("-T");
    const std::string connect = "ConnectTimeout=" + std::to_string(plan_.settings.connect_time() / 1000);
    for (const char* option : {"BatchMode=yes", connect.c_str(), "ServerAliveInterval=15",
                               "ServerAliveCountMax=3", "ForwardAgent=no", "ForwardX11=no",
                               "ClearAllForwardings=yes", "RemoteCommand=none", "RequestTTY=no"})
      words.insert(words.end(), {"-o", option});
    if (plan_.accept_new_host_keys) words.insert(words.end(), {"-o", "StrictHostKeyChecking=accept-new"});
  }
  words.push_back(host(index).destination);
  if (plan_.is_ssh) {
    words.push_back(script.empty() ? "exec dtrun agent" : "exec sh -c '" + script + "'");
  } else if (script.empty()) {
    words.insert(words.end(), {"dtrun", "agent"});
  } else {
    words.insert(words.end(), {"sh", "-c", script});
  }
  return words;
}

void Launcher::act(const launch_action::Dial& a) {
  if (a.with_files && !archive_) {
    std::error_code error;
    Result<std::shared_ptr<const std::string>> archive =
        archive_of(std::filesystem::read_symlink("/proc/self/exe", error));
    if (!archive.ok())
      return events_.push_back(launch_event::Refused{
          .host = a.host, .exit_code = archive.status().exit_code(), .why = archive.status().message()});
    archive_ = std::move(archive).value();
  }
  RemoteShell::Events events;
  events.said = [this, host = a.host](launch::FromHost message) { from_host(host, std::move(message)); };
  events.complained = [this, host = a.host](std::string_view text) {
    console_.say(name(host) + ": " + printable(text));
  };
  events.ended = [this, host = a.host](int exit_status) { gone(host, exit_status); };
  events.babbled = [this, a, heard = std::string()](std::string_view bytes) mutable {
    if (!a.with_files) {
      const std::string& first = line(a.host).shell->first_line();
      if (state_.hosts[static_cast<std::size_t>(a.host)].heard != first && !first.empty())
        events_.push_back(launch_event::Heard{.host = a.host, .line = printable(first)});
      return;
    }
    heard.append(bytes);
    if (heard.find(kWantsFiles) == std::string::npos) {
      heard.erase(0, heard.size() - std::min(heard.size(), std::string_view(kWantsFiles).size() - 1));
      return;
    }
    heard.clear();
    console_.notice("bringing dtrun to " + name(a.host) + " (" + std::to_string(archive_->size() >> 20) +
                    " MiB, once for this build)");
    line(a.host).shell->send_bytes(archive_);
  };
  const std::string script = a.with_files ? bringing_script(build_, archive_->size()) : "";
  auto shell = RemoteShell::start(loop_, words_to(a.host, script), std::move(events));
  if (!shell.ok())
    return events_.push_back(launch_event::Refused{
        .host = a.host, .exit_code = shell.status().exit_code(), .why = shell.status().message()});
  retire(std::move(line(a.host).shell));
  line(a.host).shell = std::move(shell).value();
  line(a.host).unsettled = 0;
}

void Launcher::act(const launch_action::SendJob& a) {
  launch::ToHost message;
  if (!plan_.nodes.empty()) {
    *message.mutable_attach() = plan_.attach;
    message.mutable_attach()->set_node(plan_.nodes[static_cast<std::size_t>(a.host)]);
    line(a.host).shell->send(message);
    for (const int number : plan_.signals) act(launch_action::PassSignal{a.host, number});
    return;
  }
  launch::Job& job = *message.mutable_job();
  job = plan_.job;
  const Host& to = host(a.host);
  if (!plan_.workers_are_given && to.slots > 0) job.set_workers(std::to_string(to.slots));
  for (const int gpu : to.gpus) job.add_gpus(gpu);
  job.set_again(state_.hosts[static_cast<std::size_t>(a.host)].again);
  const bool detached = plan_.settings.purpose == Purpose::kDetach;
  if (detached) job.set_detached(a.host);
  job.mutable_terminal()->set_bar(console_.has_terminal() && !detached);
  job.mutable_terminal()->set_columns(console_.columns());
  job.mutable_terminal()->set_colour(console_.palette() == Palette(true));
  line(a.host).shell->send(message);
}

void Launcher::act(const launch_action::AskToLook& a) {
  launch::ToHost message;
  for (const launch_action::At& at : a.at) {
    launch::Place& place = *message.mutable_probe()->add_places();
    for (const std::string& address : at.addresses) place.add_addresses(address);
    place.set_port(line(at.host).planned.port());
    place.set_nonce(line(at.host).planned.nonce());
  }
  line(a.host).shell->send(message);
}

void Launcher::act(const launch_action::TellBegin& a) {
  launch::ToHost message;
  message.mutable_begin()->set_address(a.address);
  message.mutable_begin()->set_port(line(a.first).planned.port());
  message.mutable_begin()->set_hosts(a.host == a.first);
  message.mutable_begin()->set_input(gives_input(a.host));
  if (a.node_rank) message.mutable_begin()->set_node_rank(*a.node_rank);
  std::vector<std::string> addresses;
  for (const launch_action::At& at : a.may_lead) {
    if (at.host == a.host) message.mutable_begin()->set_own_candidate(static_cast<int>(addresses.size()));
    addresses.push_back(at.addresses.front());
    launch::Candidate& candidate = *message.mutable_begin()->add_candidates();
    candidate.set_name(name(at.host));
    candidate.set_address(at.addresses.front());
    candidate.set_port(line(at.host).planned.port());
  }
  if (addresses.empty()) addresses.push_back(a.address);
  if (a.host == a.first && !entry_ && !plan_.job.nodes().empty())
    entry_ = agent::enter_in_registry(disk_, {.run_id = plan_.job.run_id(),
                                              .host = rendezvous::list_text(addresses),
                                              .port = message.begin().port(),
                                              .pid = getpid(),
                                              .has_key = !plan_.job.key().empty(),
                                              .key = plan_.job.key()})
                 .entry;
  line(a.host).shell->send(message);
}

void Launcher::act(const launch_action::PassSignal& a) {
  if (!line(a.host).shell) return;
  launch::ToHost message;
  message.mutable_signal()->set_number(a.signal);
  line(a.host).shell->send(message);
}

void Launcher::act(const launch_action::HangUp& a) {
  retire(std::move(line(a.host).shell));
  if (a.host == state_.first) input_.reset();
}

void Launcher::act(const launch_action::Say& a) {
  a.error ? console_.error(a.text) : console_.notice(a.text);
}

void Launcher::act(const launch_action::TellCheck& a) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (state_.hosts[i].phase != HostPhase::kReady) continue;
    const HostState& at = state_.hosts[i];
    const launch::Planned& planned = lines_[i].planned;
    std::string text = name(static_cast<int>(i));
    if (planned.name() != text && !planned.name().starts_with(text + "."))
      text += " (" + planned.name() + ")";
    text += ": " + planned.summary();
    if (!at.address.empty() && static_cast<int>(i) != *state_.first)
      text += ", reaches " + name(*state_.first) + " at " + at.address + " port " +
              std::to_string(state_.hosts[static_cast<std::size_t>(*state_.first)].port);
    if (!at.tried.empty())
      text += ", connects to " + std::to_string(at.tried.size() - at.gaps.size()) + " of the " +
              std::to_string(at.tried.size()) + " others it tried";
    const int ahead = static_cast<int>(lines_[i].clock_ahead);
    if (lines_[i].clock_ahead > kClocksDiffer) text += ", its clock is " + std::to_string(ahead) + " s ahead";
    if (lines_[i].clock_ahead < -kClocksDiffer)
      text += ", its clock is " + std::to_string(-ahead) + " s behind";
    console_.write(Console::Stream::kOut, text + "\n");
  }
  console_.write(Console::Stream::kOut, std::to_string(a.ready) + " of " + std::to_string(lines_.size()) +
                                            " hosts can run the job\n");
}

void Launcher::act(const launch_action::Remember&) {
  std::error_code error;
  DetachedRun run{.run_id = plan_.job.run_id(),
                  .ssh = plan_.ssh,
                  .accept_new_host_keys = plan_.accept_new_host_keys,
                  .directory = std::filesystem::current_path(error)};
  for (std::size_t i = 0; i < lines_.size(); ++i)
    if (state_.hosts[i].phase != HostPhase::kFailed)
      run.hosts.push_back({.host = plan_.hosts[i].destination, .node = static_cast<int>(i)});
  if (Status status = remember_run(run); !status.ok())
    console_.error(status.within("dtrun attach and dtrun stop will not find this run").message());
}

void Launcher::act(const launch_action::TellDetached&) {
  const std::string& id = plan_.job.run_id();
  console_.write(Console::Stream::kOut, "run " + id + " goes on alone: dtrun attach " + id +
                                            " | dtrun stop " + id + " | dtrun logs " + id + "\n");
}

// Until the job runs, the bar shows how far the hosts are; then it is an agent's bar.
void Launcher::show_progress() {
  if (!console_.has_terminal() || exit_code_) return;
  std::string bar;
  if (!state_.begun) {
    std::size_t here = 0;
    for (const HostState& one : state_.hosts) here += one.phase >= HostPhase::kPlanning ? 1 : 0;
    bar = "dtrun: " + std::to_string(here) + " of " + std::to_string(lines_.size()) + " hosts answer";
  }
  for (const HostConnection& one : lines_)
    if (bar.empty()) bar = one.bar;
  console_.set_bar(bar);
}

void Launcher::show_output(int host, const launch::Output& output) {
  HostConnection& one = line(host);
  one.unsettled += output.text().size();
  console_.write(output.to_stderr() ? Console::Stream::kErr : Console::Stream::kOut, output.text());
  if (!congested_ && one.unsettled > kPortion) settle(one);
  if (one.unsettled > kMostUnsettled) one.shell->break_off("it sent more output than is shown");
}

void Launcher::settle(HostConnection& one) {
  if (!one.shell || one.unsettled == 0) return;
  launch::ToHost message;
  message.mutable_shown()->set_bytes(std::exchange(one.unsettled, 0));
  one.shell->send(message);
}

// A slow reader of ours slows the workers down, as it does on one host. What else hosts tell is always heard.
void Launcher::hold_back(bool congested) {
  congested_ = congested;
  if (congested) return;
  for (HostConnection& one : lines_) settle(one);
}

}  // namespace

int run_launch(LaunchPlan plan, bool* ended) {
  if (plan.settings.purpose == Purpose::kDetach)
    if (Status status = check_can_remember(); !status.ok()) {
      std::fprintf(stderr, "dtrun: %s\n", status.message().c_str());
      return status.exit_code();
    }
  for (const Host& host : plan.hosts)
    plan.settings.logins.push_back(shell_of(plan) + (plan.is_ssh ? " -o BatchMode=yes " : " ") +
                                   shell_word(host.destination) + " true");
  agent::Signals signals;
  Launcher launcher(std::move(plan), signals);
  const int exit_code = launcher.run();
  if (ended != nullptr) *ended = launcher.all_ended();
  return exit_code;
}

}  // namespace dtrun::cmd
