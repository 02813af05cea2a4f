#include "agent/health/gpu_observer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/gpu/reading_json.h"
#include "agent/process/spawn.h"
#include "agent/system/pidfd.h"

namespace dtrun::agent {

GpuObserver::GpuObserver(Loop& loop, std::vector<std::string> command, std::vector<std::string> environment,
                         std::function<void(pid_t)> started)
    : loop_(loop),
      command_(std::move(command)),
      environment_(std::move(environment)),
      started_(std::move(started)) {}

void GpuObserver::ask(std::chrono::milliseconds limit, Answer done) {
  const bool owes = !questions_.empty() && questions_.front().done == nullptr;
  if (owes || (!socket_.open() && !start()) || send(socket_.get(), "\n", 1, MSG_NOSIGNAL) != 1)
    return done(std::nullopt);
  const int id = next_id_++;
  const auto timer = loop_.call_at(Loop::Clock::now() + limit, [this, id] { overdue(id); });
  questions_.push_back({.done = std::move(done), .timer = timer, .id = id});
}

bool GpuObserver::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  Descriptor ours(ends[0]), theirs(ends[1]), null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  SpawnPlan plan;
  plan.argv = command_;
  plan.environment = environment_;
  plan.stdin_fd = plan.stdout_fd = theirs.get();
  plan.stderr_fd = null.get();
  const Result<pid_t> pid = spawn(plan);
  if (!pid.ok()) return false;
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  process_.reset(open_pidfd(pid.value()));
  socket_ = std::move(ours);
  loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { readable(); });
  started_(pid.value());
  return true;
}

void GpuObserver::stop() {
  for (Question& question : questions_)
    if (question.timer) loop_.cancel(*question.timer);
  questions_.clear();
  text_.clear();
  if (socket_.open()) loop_.forget(socket_.get());
  socket_.reset();
  if (process_.open()) signal_pidfd(process_.get(), SIGKILL);
  process_.reset();
}

void GpuObserver::readable() {
  char part[4096];
  for (;;) {
    const ssize_t n = read(socket_.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return fail();
    text_.append(part, static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = text_.find('\n')) != std::string::npos;) {
      const std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      take(line);
      if (!socket_.open()) return;  // take()'s callback stopped it
    }
  }
}

void GpuObserver::take(const std::string& line) {
  if (questions_.empty()) return;
  const Question question = std::move(questions_.front());
  questions_.pop_front();
  if (question.timer) loop_.cancel(*question.timer);
  if (question.done) question.done(reading_of(line));
}

// Its answer may come yet, before those to later questions.
void GpuObserver::overdue(int id) {
  const auto question =
      std::find_if(questions_.begin(), questions_.end(), [&](const Question& one) { return one.id == id; });
  if (question == questions_.end()) return;
  question->timer.reset();
  const Answer done = std::exchange(question->done, nullptr);
  done(std::nullopt);
}

// Its process has ended.
void GpuObserver::fail() {
  std::deque<Question> unanswered;
  unanswered.swap(questions_);
  for (Question& question : unanswered)
    if (question.timer) loop_.cancel(*question.timer);
  stop();
  for (const Question& question : unanswered)
    if (question.done) question.done(std::nullopt);
}

}  // namespace dtrun::agent
