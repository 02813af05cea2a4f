// The order of things: hello; the launcher's files and environment; the plan, which is told and may be
// refused; the look for the other hosts; the launcher's word to begin; then either the agent here, or a
// detached one that is forked off the line.
#include "cmd/launch/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "agent/agent.h"
#include "agent/job_registry.h"
#include "agent/local_address.h"
#include "agent/process/spawn.h"
#include "cmd/check/build.h"
#include "cmd/check/connectivity_probe.h"
#include "cmd/check/node_checks.h"
#include "cmd/launch/brought_builds.h"
#include "cmd/launch/clean.h"
#include "cmd/launch/detached_files.h"
#include "cmd/launch/detached_relay.h"
#include "cmd/machine/machine.h"
#include "cmd/manual/manual.h"
#include "cmd/options/options.h"
#include "cmd/options/values.h"
#include "cmd/plan/make_job_spec.h"
#include "proto/base/clock.h"
#include "proto/base/descriptor.h"
#include "proto/base/framed_channel.h"
#include "proto/base/ids.h"
#include "proto/base/log.h"
#include "proto/core/contract.h"
#include "proto/launch.pb.h"
#include "rendezvous/identity/key_source.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;
using launch::FromHost;
using launch::ToHost;
namespace fs = std::filesystem;

constexpr auto kToLookFor = 5s;
constexpr auto kToLookAgain = 100ms;

// The launcher's words one by one, and ours, before the agent's loop takes the line over. Blocking.
class HandshakeLine {
 public:
  // Takes standard input and output: other reads and writes of this process must not get in between.
  explicit HandshakeLine(std::chrono::milliseconds silence)
      : silence_(static_cast<int>(silence.count())),
        in_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 16)),
        out_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 16)) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    close(nothing);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }

  int in() const { return in_; }
  int out() const { return out_; }

  void greet() const { write_all(out_, kLaunchPreamble); }
  // Should nobody read it, the next read finds the end.
  void say(const FromHost& message) const { write_all(out_, frame_of(message)); }

  // Nothing when the launcher is gone, silent for Times::launcher_silence, or does not make sense. Greets
  // connections to `place` meanwhile. Takes no byte behind the message: the rest is the agent's loop's.
  std::optional<ToHost> next(ProbeListener* place) const {
    for (auto message = read_message(place);; message = read_message(place))
      if (!message || !is_answered(*message)) return message;
  }

  // Until `stop` can be read: answers in place of next(). Ends the process if the launcher is gone: nothing
  // has begun that it would miss.
  void answer_until(int stop) const {
    for (;;) {
      pollfd entries[] = {{in_, POLLIN, 0}, {stop, POLLIN, 0}};
      const int ready = poll(entries, 2, silence_);
      if (ready < 0 && errno == EINTR) continue;
      if (entries[1].revents != 0) return;
      const auto message = ready > 0 ? read_message(nullptr) : std::nullopt;
      if (!message || !is_answered(*message)) _exit(kExitUnavailable);
    }
  }

 private:
  std::optional<ToHost> read_message(ProbeListener* place) const {
    MessageReader<ToHost> messages;
    for (;;) {
      auto message = messages.next();
      if (!message.ok()) return std::nullopt;
      if (message.value()) return std::move(message).value();
      if (!wait_for_bytes(place) || messages.read_next_from(in_) != Portion::kBytes) return std::nullopt;
    }
  }

  // A sign of life is answered; a signal says nothing before the job begins (SIGUSR1 is for workers).
  bool is_answered(const ToHost& message) const {
    if (!message.has_alive()) return message.has_signal();
    FromHost alive;
    alive.mutable_alive();
    say(alive);
    return true;
  }

  bool wait_for_bytes(ProbeListener* place) const {
    for (;;) {
      pollfd entries[] = {{in_, POLLIN, 0}, {place != nullptr ? place->fd() : -1, POLLIN, 0}};
      const int ready = poll(entries, 2, silence_);
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return false;
      if (entries[1].revents != 0) place->greet();
      if (entries[0].revents != 0) return true;
    }
  }

  const int silence_;  // milliseconds
  const int in_, out_;
};

// Answers the launcher's signs of life while it lives, whatever this thread waits for.
class Answering {
 public:
  explicit Answering(const HandshakeLine& line)
      : stop_(eventfd(0, EFD_CLOEXEC)), thread_([this, &line] { line.answer_until(stop_.get()); }) {}
  ~Answering() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  Answering(const Answering&) = delete;

 private:
  const Descriptor stop_;
  std::thread thread_;
};

FromHost hello() {
  FromHost message;
  message.mutable_hello()->set_protocol(kLaunchProtocol);
  message.mutable_hello()->set_build(own_build());
  message.mutable_hello()->set_time(wall_seconds());
  return message;
}

// The address of this host that the launcher connected to, from sshd: "CLIENT PORT SERVER PORT".
std::string address_of_ssh() {
  const char* connection = std::getenv("SSH_CONNECTION");
  std::istringstream words(connection != nullptr ? connection : "");
  std::string client, port, server;
  words >> client >> port >> server;
  return server;
}

// Puts the launcher's environment on top of this host's environment for its users.
void take_environment(const launch::Job& job) {
  for (const std::string& entry : job.environment()) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  if (job.gpus_size() == 0) return;
  std::string list;
  for (const int gpu : job.gpus()) list += (list.empty() ? "" : ",") + std::to_string(gpu);
  setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
}

Status enter(const std::string& directory) {
  if (chdir(directory.c_str()) == 0) return {};
  return Status(kExitNoInput,
                directory + ": " + std::strerror(errno) +
                    " (the job runs in the same directory on every host; --chdir names another)");
}

// The launcher's decisions override its user's options, and the launcher's own options are removed.
void settle_options(const launch::Job& job, Options* options) {
  for (const OptionEntry& entry : kOptions)
    if (std::string_view(entry.group) == group::kHosts) options->values.erase(entry.name);
  for (const OptionName name : {OptionName("key_file"), OptionName("insecure")})
    options->values.erase(name.text());
  const auto set = [&](OptionName name, const std::string& value) {
    options->values[name.text()] = {.value = value, .source = "--" + std::string(name.text())};
  };
  set("rdzv_id", job.run_id());
  if (!job.workers().empty()) set("nproc_per_node", job.workers());
  if (job.nodes().empty()) {
    set("standalone", "true");
    return set("nnodes", "1");
  }
  if (job.key().empty()) set("insecure", "true");
  set("nnodes", job.nodes());
  set("rdzv_endpoint", host_name());  // until Begin names the endpoint
  if (!options->has("log_prefix") && !options->has("log_line_prefix_template"))
    set("log_prefix", "[{host}:{rank}]");
}

struct NodePlan {
  JobSpec spec;
  std::vector<std::string> notices;
};

Result<NodePlan> plan_node(const launch::Job& job) {
  take_environment(job);
  RETURN_IF_ERROR(enter(job.directory()));
  // The launcher decides on the job's key, whatever this host offers.
  rendezvous::forget_key_variables();
  const Environment environment = [&job](const char* name) -> const char* {
    const bool asks_for_key = !job.key().empty() && std::strcmp(name, rendezvous::kKeyVariable) == 0;
    return asks_for_key ? job.key().c_str() : std::getenv(name);
  };
  ASSIGN_OR_RETURN(Options options,
                   parse_command_line({job.words().begin(), job.words().end()}, environment));
  settle_options(job, &options);
  if (job.has_config()) options.config_text = job.config();

  NodePlan plan;
  const Notice notice = [&](const std::string& text) { plan.notices.push_back(text); };
  ASSIGN_OR_RETURN(JobSpec spec, make_job_spec(options, this_machine(), environment, notice));
  RETURN_IF_ERROR(check_files(spec, options.program));
  RETURN_IF_ERROR(check_node(spec, notice));
  plan.spec = std::move(spec);
  plan.spec.doctor.clear();  // the launcher tells its own, for all hosts
  find_facts_for_others(&plan.spec);
  return plan;
}

std::string summary_of(const JobSpec& spec) {
  const std::string workers = std::to_string(spec.nproc) + (spec.nproc == 1 ? " worker" : " workers");
  return version() + ", " + workers + (spec.gpus.empty() ? "" : ", GPUs: " + gpus_text(spec.gpus)) +
         (spec.device.empty() ? "" : ", device: " + spec.device);
}

FromHost planned(const NodePlan& plan, const ProbeListener& place) {
  FromHost message;
  launch::Planned& body = *message.mutable_planned();
  for (const std::string& address : agent::own_addresses(address_of_ssh())) body.add_addresses(address);
  body.set_port(place.port());
  body.set_nonce(place.nonce());
  for (const std::string& notice : plan.notices) body.add_notices(clean_lines(notice));
  body.set_summary(summary_of(plan.spec));
  body.set_name(host_name());
  return message;
}

FromHost seen(const launch::Probe& probe, ProbeListener* own) {
  std::vector<ProbeTarget> sought;
  for (const launch::Place& place : probe.places())
    sought.push_back({.addresses = {place.addresses().begin(), place.addresses().end()},
                      .port = place.port(),
                      .nonce = place.nonce()});
  FromHost message;
  for (const ProbeResult& result : probe_all(sought, kToLookFor, own)) {
    launch::ProbeResult& told = *message.mutable_seen()->add_results();
    told.set_address(result.address);
    told.set_from(result.from);
    for (const std::string& why : result.why_not) told.add_why_not(why);
  }
  return message;
}

FromHost refused(const Status& status) {
  FromHost message;
  message.mutable_refused()->set_exit_code(status.exit_code());
  message.mutable_refused()->set_why(clean_lines(status.message()));
  return message;
}

// The launcher's words. On any candidate the first port is free, most likely; else the one that was found
// there is.
HostingQuestion question_of(const launch::Begin& begin) {
  HostingQuestion question{.hosts = {begin.address()}, .ports = {begin.port()}, .any_address = true};
  question.placement = Placement{.hosts = begin.hosts(),
                                 .own_host = begin.has_own_candidate() ? begin.own_candidate() : -1,
                                 .starts_once = true};
  if (begin.candidates_size() > 0) question.hosts.clear();
  for (const launch::Candidate& one : begin.candidates()) {
    question.hosts.push_back(one.address());
    question.names.push_back(one.name());
    if (std::ranges::count(question.ports, one.port()) == 0) question.ports.push_back(one.port());
  }
  return question;
}

void settle_place(const launch::Begin& begin, bool again, JobSpec* spec) {
  if (std::holds_alternative<Standalone>(spec->rendezvous.hosting)) return;
  if (begin.has_node_rank()) spec->node_rank = begin.node_rank();
  spec->rendezvous.hosting = decide_hosting(question_of(begin), {}).hosting;
  if (auto* list = std::get_if<Candidates>(&spec->rendezvous.hosting)) list->first_start = !again;
}

FromHost begun() {
  FromHost message;
  message.mutable_begun();
  return message;
}

FromHost ended(int exit_code) {
  FromHost message;
  message.mutable_ended()->set_exit_code(exit_code);
  return message;
}

// Nothing of ssh is kept, so that its connection can end.
void leave_line(const HandshakeLine& line, int output) {
  setsid();
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  close(line.in());
  close(line.out());
}

// The agent that goes on alone. It tells through `begun` whether it has its files.
[[noreturn]] void run_detached(JobSpec spec, const HandshakeLine& line, const fs::path& folder, int begun) {
  Result<DetachedWriter> files = DetachedWriter::open(folder);
  const std::string why = files.ok() ? "" : files.status().message();
  [[maybe_unused]] const ssize_t n = write(begun, why.data(), why.size());
  close(begun);
  if (!files.ok()) _exit(files.status().exit_code());
  leave_line(line, files.value().output());
  spec.output.remote.emplace();
  const int exit_code = agent::run(spec);
  files.value().finish(exit_code);
  _exit(exit_code);
}

// Two forks: the agent has no parent here, and leads no session that could get a terminal.
Status detach(const JobSpec& spec, const HandshakeLine& line, const fs::path& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_status(kExitUnavailable, "cannot make a pipe", errno);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) run_detached(spec, line, folder, write_end.get());
    _exit(grandchild > 0 ? 0 : 1);
  }
  const int error = errno;
  write_end.reset();
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  if (child < 0 || status != 0) return errno_status(kExitUnavailable, "cannot start the agent", error);
  std::string why;
  char bytes[512];
  for (ssize_t n = 0; (n = read(read_end.get(), bytes, sizeof bytes)) > 0;)
    why.append(bytes, static_cast<std::size_t>(n));
  return why.empty() ? Status() : Status(kExitCannotCreate, why);
}

int run_detached_job(const JobSpec& spec, const HandshakeLine& line, const fs::path& folder) {
  const Status status = detach(spec, line, folder);
  line.say(status.ok() ? begun() : refused(status));
  return status.exit_code();
}

// The launcher has lost an agent of this run, which may be ending yet: it would have GPUs, ports and the lock
// of the output. It ends once it misses the launcher.
Status await_earlier_agent(const std::string& run_id, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const std::vector<agent::RegisteredJob> jobs = agent::registered_jobs(agent::registry_folder());
    const auto earlier = std::ranges::find_if(
        jobs, [&](const auto& job) { return job.run_id == run_id && job.node == host_name(); });
    if (earlier == jobs.end()) return {};
    if (std::chrono::steady_clock::now() >= deadline)
      return Status(kExitUnavailable, "an earlier agent of this run (process " +
                                          std::to_string(earlier->pid) + ") does not end");
    std::this_thread::sleep_for(kToLookAgain);
  }
}

Result<NodePlan> plan_host(const launch::Job& job, const Times& times) {
  if (job.again()) RETURN_IF_ERROR(await_earlier_agent(job.run_id(), 2 * times.launcher_silence));
  if (job.has_detached())
    RETURN_IF_ERROR(make_detached_folder(detached_folder(job.run_id(), job.detached())));
  return plan_node(job);
}

// Our standard input, which workers get, becomes a pipe. Its other end; -1: they have none.
int open_input() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const Descriptor read_end(ends[0]), write_end(ends[1]);
  dup2(read_end.get(), STDIN_FILENO);
  return fcntl(write_end.get(), F_DUPFD_CLOEXEC, agent::kFirstSpareFd);
}

int run_job(const HandshakeLine& line, const launch::Job& job, const Times& times) {
  Result<NodePlan> plan = [&] {
    const Answering answering(line);
    return plan_host(job, times);
  }();
  Result<ProbeListener> place = plan.ok() ? ProbeListener::open() : plan.status();
  if (!place.ok()) {
    line.say(refused(place.status()));
    return place.status().exit_code();
  }
  line.say(planned(plan.value(), place.value()));
  std::optional<ToHost> next = line.next(&place.value());
  for (; next && next->has_probe(); next = line.next(&place.value()))
    line.say(seen(next->probe(), &place.value()));
  if (!next || !next->has_begin()) return kExitUnavailable;
  { const ProbeListener closed = std::move(place).value(); }

  JobSpec& spec = plan.value().spec;
  settle_place(next->begin(), job.again(), &spec);
  spec.times = times;
  if (job.has_detached()) return run_detached_job(spec, line, detached_folder(job.run_id(), job.detached()));
  spec.output.remote = RemoteTerminal{.in_fd = line.in(),
                                      .out_fd = line.out(),
                                      .input_fd = next->begin().input() ? open_input() : -1,
                                      .bar = job.terminal().bar(),
                                      .columns = job.terminal().columns(),
                                      .colour = job.terminal().colour()};
  line.say(begun());
  const int exit_code = agent::run(spec);
  line.say(ended(exit_code));
  return exit_code;
}

}  // namespace

int run_host_agent(const Times& times) {
  set_up_log("dtrun");
  std::error_code error;
  const auto build = brought_build(fs::read_symlink("/proc/self/exe", error), own_build());
  const Descriptor kept = build.empty() ? Descriptor() : keep_build(build);
  const HandshakeLine line(times.launcher_silence);
  line.greet();
  line.say(hello());
  if (!build.empty()) remove_old_builds(build);
  const std::optional<ToHost> first = line.next(nullptr);
  if (first && first->has_attach()) {
    const Status status = relay_detached(first->attach(), line.in(), line.out(), times);
    if (!status.ok()) line.say(refused(status));
    return status.exit_code();
  }
  if (!first || !first->has_job()) return kExitUnavailable;  // only asked for our greeting
  return run_job(line, first->job(), times);
}

}  // namespace dtrun::cmd
