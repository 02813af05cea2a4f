#include "agent/system/signals.h"

#include <signal.h>
#include <sys/signalfd.h>

namespace dtrun::agent {

Signals::Signals() {
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  hangup_ignored_ = hangup.sa_handler == SIG_IGN;

  // The program that started us may have set SIGCHLD to be ignored, as some supervisors do. Then children
  // would vanish together with their exit codes.
  struct sigaction fallback {};
  fallback.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &fallback, nullptr);

  sigset_t blocked;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF})
    sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  sigset_t read = blocked;
  sigdelset(&read, SIGPIPE);  // a failed write reports it
  fd_.reset(signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK));
}

Signals::~Signals() {
  if (loop_ != nullptr) loop_->forget(fd_.get());
}

void Signals::watch(Loop& loop, std::function<void(int)> arrived) {
  loop_ = &loop;
  arrived_ = std::move(arrived);
  loop.watch(fd_.get(), EPOLLIN, [this](std::uint32_t) { read_all(); });
}

void Signals::read_all() {
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGHUP && hangup_ignored_) continue;
    arrived_(number);
  }
}

void stop_self() { kill(getpid(), SIGSTOP); }

}  // namespace dtrun::agent
