#include "cmd/launch/remote_shell.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/process/spawn.h"
#include "agent/system/own_environment.h"
#include "agent/system/pidfd.h"
#include "proto/core/contract.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kMostStandardError = 16u << 10;
constexpr std::size_t kLongestFirstLine = 200;
constexpr int kMostPortions = 256;  // a pipe holds 64 KiB, in writes of a page

struct Pipe {
  Descriptor read_end, write_end;
};

// Above the numbers that the child takes.
Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_status(kExitUnavailable, "cannot make a pipe", errno);
  const Descriptor low[] = {Descriptor(ends[0]), Descriptor(ends[1])};
  return Pipe{Descriptor(fcntl(ends[0], F_DUPFD_CLOEXEC, agent::kFirstSpareFd)),
              Descriptor(fcntl(ends[1], F_DUPFD_CLOEXEC, agent::kFirstSpareFd))};
}

void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

Result<std::unique_ptr<RemoteShell>> RemoteShell::start(agent::Loop& loop,
                                                        const std::vector<std::string>& argv, Events events) {
  std::unique_ptr<RemoteShell> shell(new RemoteShell(loop, std::move(events)));
  RETURN_IF_ERROR(shell->spawn(argv));
  return shell;
}

Status RemoteShell::spawn(const std::vector<std::string>& argv) {
  Result<Pipe> in = make_pipe(), out = make_pipe(), err = make_pipe();
  for (const auto* pipe : {&in, &out, &err})
    if (!pipe->ok()) return pipe->status();
  agent::SpawnPlan plan;
  plan.argv = argv;
  plan.environment = agent::own_environment();
  plan.stdin_fd = in.value().read_end.get();
  plan.stdout_fd = out.value().write_end.get();
  plan.stderr_fd = err.value().write_end.get();
  ASSIGN_OR_RETURN(pid_, agent::spawn(plan));
  process_.reset(agent::open_pidfd(pid_));
  in_ = std::move(in.value().write_end);
  out_ = std::move(out.value().read_end);
  err_ = std::move(err.value().read_end);
  for (const int fd : {in_.get(), out_.get(), err_.get()}) unblock(fd);
  loop_.watch(out_.get(), EPOLLIN, [this](std::uint32_t) { read_out(); });
  loop_.watch(err_.get(), EPOLLIN, [this](std::uint32_t) { read_err(); });
  loop_.watch(process_.get(), EPOLLIN, [this](std::uint32_t) { reap(); });
  return {};
}

void RemoteShell::abandon() {
  close_out();
  close_err();
  if (std::exchange(writing_, false)) loop_.forget(in_.get());
  in_.reset();
  if (process_.open()) loop_.forget(process_.get());
  process_.reset();
  const pid_t pid = std::exchange(pid_, -1);
  if (exit_status_ || pid < 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

void RemoteShell::send(const launch::ToHost& message) {
  send_bytes(std::make_shared<const std::string>(frame_of(message)));
}

void RemoteShell::send_bytes(std::shared_ptr<const std::string> bytes) {
  if (!in_.open() || input_ends_) return;
  queue_.push_back(std::move(bytes));
  write_some();
}

void RemoteShell::finish_input() {
  input_ends_ = true;
  write_some();
}

void RemoteShell::write_some() {
  while (in_.open() && !queue_.empty()) {
    const std::string& bytes = *queue_.front();
    const ssize_t n = write(in_.get(), bytes.data() + written_, bytes.size() - written_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) queue_.clear();  // it reads no more; its end will come
    if (n < 0) break;
    written_ += static_cast<std::size_t>(n);
    if (written_ < bytes.size()) continue;
    queue_.pop_front();
    written_ = 0;
  }
  const bool want = !queue_.empty();
  if (want && !writing_) loop_.watch(in_.get(), EPOLLOUT, [this](std::uint32_t) { write_some(); });
  if (!want && writing_) loop_.forget(in_.get());
  writing_ = want;
  if (input_ends_ && !want) in_.reset();
}

// False at the end, and if there is nothing now.
bool RemoteShell::read_out() {
  char bytes[65536];
  const ssize_t n = read(out_.get(), bytes, sizeof bytes);
  if (n > 0) {
    heard_at_ = agent::Loop::Clock::now();
    take({bytes, static_cast<std::size_t>(n)});
    return true;
  }
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) close_out();
  return false;
}

void RemoteShell::take(std::string_view bytes) {
  if (greeted_) {
    messages_.push(bytes);
    return take_messages();
  }
  before_.append(bytes);
  const std::size_t at = before_.find(kLaunchPreamble);
  if (at == std::string::npos) return babble(bytes);
  greeted_ = true;
  messages_.push(std::string_view(before_).substr(at + kLaunchPreamble.size()));
  before_.clear();
  take_messages();
}

// A shell that prints without end is no host that answers late.
void RemoteShell::babble(std::string_view bytes) {
  babbled_ += bytes.size();
  if (!first_line_ends_) {
    const std::size_t end = bytes.find('\n');
    first_line_.append(bytes.substr(0, end)).resize(std::min(first_line_.size(), kLongestFirstLine));
    first_line_ends_ = end != std::string_view::npos;
  }
  if (babbled_ > kMostBabble)
    return break_off("it printed " + std::to_string(kMostBabble >> 20) +
                     " MiB before an agent answered, beginning with: " + first_line_);
  before_.erase(0, before_.size() - std::min(before_.size(), kLaunchPreamble.size() - 1));
  events_.babbled(bytes);
}

void RemoteShell::break_off(const std::string& why) {
  standard_error_ = why;
  kill(pid_, SIGKILL);
  close_err();
  close_out();
}

void RemoteShell::take_messages() {
  while (out_.open()) {
    auto message = messages_.next();
    if (!message.ok()) return break_off("it sent what no agent of this dtrun sends");
    if (!message.value()) return;
    events_.said(*std::move(message).value());
  }
}

bool RemoteShell::read_err() {
  char bytes[4096];
  const ssize_t n = read(err_.get(), bytes, sizeof bytes);
  if (n > 0) {
    complain({bytes, static_cast<std::size_t>(n)});
    return true;
  }
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) close_err();
  return false;
}

void RemoteShell::complain(std::string_view text) {
  if (!greeted_) {
    standard_error_.append(
        text.substr(0, kMostStandardError - std::min(kMostStandardError, standard_error_.size())));
    return;
  }
  for (const char c : text) {
    if (c != '\n' && line_.size() < kMostStandardError) {
      line_.push_back(c);
      continue;
    }
    events_.complained(line_);
    line_.clear();
  }
}

void RemoteShell::close_out() {
  if (out_.open()) loop_.forget(out_.get());
  out_.reset();
}

void RemoteShell::close_err() {
  if (err_.open()) loop_.forget(err_.get());
  err_.reset();
}

void RemoteShell::reap() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  loop_.forget(process_.get());
  process_.reset();
  exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // Its last output comes first, from each stream at most a pipe's. A process that it started may hold the
  // streams open (a master connection of ssh's), and write without end: there is no wait for that.
  for (int i = 0; i < kMostPortions && out_.open() && read_out(); ++i) {
  }
  for (int i = 0; i < kMostPortions && err_.open() && read_err(); ++i) {
  }
  close_out();
  close_err();
  if (pid_ >= 0) events_.ended(*exit_status_);
}

}  // namespace dtrun::cmd
