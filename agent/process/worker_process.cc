#include "agent/process/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "agent/process/spawn.h"
#include "agent/system/pidfd.h"
#include "proto/base/clock.h"
#include "proto/core/exit_codes.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;

// How long to read output after the worker's end if another process still holds the pipe.
constexpr auto kOutputAfterEnd = 1s;
// The same if that process may go on writing: enough for the worker's own output to come before the job's
// end.
constexpr auto kOwnOutput = 100ms;

// The agent's own input, as under torchrun, so that data can be piped in and a debugger be used. A job in the
// background does not get the terminal, because its shell reads that. -1 with errno on failure.
int standard_input(bool builtin) {
  const bool background = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) != getpgrp();
  if (builtin || background) return open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
}

}  // namespace

WorkerProcess::WorkerProcess(Loop& loop, Console& console, WorkerPlan plan, Callbacks callbacks)
    : loop_(loop),
      console_(console),
      plan_(std::move(plan)),
      generation_(plan_.generation),
      rank_(plan_.rank),
      leads_(plan_.local_rank == 0),
      callbacks_(std::move(callbacks)),
      output_(loop, console, plan_.out, plan_.err, [this] { check_ended(); }),
      signs_(plan_.program) {}

WorkerProcess::~WorkerProcess() {
  if (handle_.open()) loop_.forget(handle_.get());
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

// Child's ends: stdin, stdout, stderr, control. Ours are stored.
bool WorkerProcess::make_channels(int child_fds[4]) {
  child_fds[0] = standard_input(!plan_.program);
  if (!output_.open(&child_fds[1], &child_fds[2])) return false;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  child_fds[3] = ends[1];
  fcntl(ends[0], F_SETFL, O_NONBLOCK);  // a process that outlives the worker keeps the other end open
  control_ = std::make_unique<ControlChannel>(loop_, Descriptor(ends[0]), callbacks_.message,
                                              [this](const std::string& error) { protocol_broken(error); });
  return child_fds[0] >= 0;
}

void WorkerProcess::start() {
  started_at_ = exited_at_ = Loop::Clock::now();
  ended_at_ = wall_seconds();
  signs_.start(plan_.heartbeat_file);
  int child_fds[4] = {-1, -1, -1, -1};
  const bool made = make_channels(child_fds);
  const int error = errno;
  Descriptor owned[4] = {Descriptor(child_fds[0]), Descriptor(child_fds[1]), Descriptor(child_fds[2]),
                         Descriptor(child_fds[3])};
  if (!made) return start_failed(errno_status(kExitSoftware, "cannot start a worker: no pipe to it", error));

  auto pid = spawn({.argv = plan_.argv,
                    .environment = plan_.environment,
                    .stdin_fd = child_fds[0],
                    .stdout_fd = child_fds[1],
                    .stderr_fd = child_fds[2],
                    .control_fd = child_fds[3],
                    .in_memory_checkpoint_fd = plan_.in_memory_checkpoint_fd,
                    .operations_fd = plan_.operations_fd,
                    .data_fd = plan_.data_fd,
                    .cpus = plan_.cpus,
                    .limit_tag = limit_tag(plan_.tag)});
  if (!pid.ok()) return start_failed(pid.status());
  pid_ = last_pid_ = pid.value();
  output_.read();
  handle_.reset(open_pidfd(pid_));  // without one, only SIGCHLD says when it ends
  if (handle_.open()) loop_.watch(handle_.get(), EPOLLIN, [this](std::uint32_t) { reap(); });
}

void WorkerProcess::start_failed(const Status& status) {
  error_ = status.message();
  exit_code_ = status.exit_code();
  ended_ = true;
  control_.reset();
  output_.close();
  callbacks_.ended(outcome(), exit_code_ == 126 || exit_code_ == 127);
}

void WorkerProcess::set_place(std::int64_t generation, int rank, bool leads) {
  generation_ = generation;
  rank_ = rank;
  leads_ = leads;
  signs_.begin_generation();
}

void WorkerProcess::signal_group(int number) {
  if (pid_ <= 0) return;
  kill(-pid_, number);
  // A stopped process must be continued to get the request to end.
  if (number != SIGKILL && number != SIGSTOP) kill(-pid_, SIGCONT);
}

void WorkerProcess::send(const control::FromAgent& message) {
  if (control_) control_->send(message);
}

std::optional<training::Progress> WorkerProcess::look_at_heartbeat_file() {
  std::optional<training::Progress> report = signs_.look_at_file();
  if (const std::string fault = signs_.take_fault(); !fault.empty())
    console_.notice(name() + "'s $DTRUN_HEARTBEAT_FILE has no report of progress: " + fault);
  return report;
}

WorkerOutcome WorkerProcess::hung_outcome(const std::string& why) const {
  WorkerOutcome hung = outcome();
  hung.exit_code = 0;
  hung.signal = SIGKILL;
  hung.cause = EndCause::kHung;
  hung.error = printable(why);
  hung.uptime_s = std::chrono::duration<double>(Loop::Clock::now() - started_at_).count();
  hung.ended_at = wall_seconds();
  return hung;
}

void WorkerProcess::kill_hung(const std::string& why) {
  error_ = why;
  hung_ = true;
  signal_group(SIGKILL);
}

// A program may do without the protocol.
void WorkerProcess::protocol_broken(const std::string& error) {
  if (!plan_.program) return condemn(error);
  console_.notice(name() + " is not listened to any more: " + error);
}

void WorkerProcess::condemn(const std::string& why) {
  error_ = why;
  condemned_ = true;
  signal_group(SIGKILL);
}

void WorkerProcess::reap() {
  if (pid_ <= 0) return;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return;
  // While the leader is a zombie, no other process or group can get its number.
  spares_group_ = callbacks_.exited(info.si_code == CLD_EXITED && info.si_status == 0);
  if (!spares_group_) kill(-pid_, SIGKILL);
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  const bool by_signal = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  exit_code_ = by_signal ? 0 : info.si_status;
  signal_ = by_signal ? info.si_status : 0;
  exited_at_ = Loop::Clock::now();
  ended_at_ = wall_seconds();
  pid_ = -1;
  if (handle_.open()) loop_.forget(handle_.get());
  handle_.reset();
  if (control_) control_->drain_and_close();
  const auto patience = spares_group_ ? std::chrono::milliseconds(kOwnOutput) : kOutputAfterEnd;
  late_timer_.set(exited_at_ + patience, [this] { output_late(); });
  check_ended();
}

void WorkerProcess::output_late() {
  output_.drain();  // nobody else reads it while the readers of its output are slow
  if (ended_) return;
  if (spares_group_) return count_as_ended();
  output_.close();
  check_ended();
}

void WorkerProcess::check_ended() {
  if (ended_ || pid_ > 0 || output_.is_open()) return;
  count_as_ended();
}

void WorkerProcess::count_as_ended() {
  ended_ = true;
  late_timer_.cancel();
  callbacks_.ended(outcome(), false);
}

WorkerError WorkerProcess::read_error() const {
  const auto own = std::make_shared<WorkerError>();
  const auto read = [own, file = plan_.error_file] { *own = read_error_file(file); };
  return !plan_.error_file.empty() && plan_.error_disk->run(read) ? std::move(*own) : WorkerError();
}

const std::string& WorkerProcess::raised() const {
  if (raised_.empty()) raised_ = read_error().message;
  return raised_;
}

WorkerOutcome WorkerProcess::outcome() const {
  WorkerOutcome outcome;
  outcome.local_rank = plan_.local_rank;
  outcome.rank = rank_;
  outcome.pid = last_pid_;
  outcome.exit_code = condemned_ ? kExitSoftware : exit_code_;
  outcome.signal = condemned_ ? 0 : signal_;
  outcome.retryable = !final_;
  outcome.stderr_tail = output_.error_tail();
  const bool ended_otherwise = hung_ && signal_ != SIGKILL;
  outcome.error = ended_otherwise ? "" : printable(error_);
  if (!outcome.ok()) {
    WorkerError own = read_error();
    if (outcome.error.empty()) outcome.error = std::move(own.message);
    outcome.traceback = std::move(own.traceback);
    outcome.error_at = own.written_at;
  }
  outcome.uptime_s = std::chrono::duration<double>(exited_at_ - started_at_).count();
  outcome.ended_at = ended_at_;
  outcome.where = stack_location_.where;
  outcome.activity = stack_location_.activity;
  if (hung_ && signal_ == SIGKILL) outcome.cause = EndCause::kHung;
  return outcome;
}

}  // namespace dtrun::agent
