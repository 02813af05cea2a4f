// The worker of the chaos tests. `chaos_worker work MS FILE`: forks a child into its own group and a daemon
// into a session of its own, works that long, once the file is there, and ends with 0. `chaos_worker talk
// LINES PER_SECOND`: says numbered lines, half of them on each stream, at that rate.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/support/clock.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void sleep_forever() {
  signal(SIGTERM, SIG_IGN);
  for (;;) pause();
}

void leave_children_behind() {
  if (fork() == 0) sleep_forever();
  const pid_t between = fork();
  if (between == 0) {
    setsid();
    if (fork() == 0) sleep_forever();
    _exit(0);
  }
  waitpid(between, nullptr, 0);
}

int work(const std::string& rank, int ms, const char* go) {
  leave_children_behind();
  while (access(go, F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const dtrun::test::Stopwatch watch;
  for (int tick = 0; watch.wall() < std::chrono::milliseconds(ms); ++tick) {
    printf("rank %s tick %d\n", rank.c_str(), tick);
    fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  printf("rank %s done\n", rank.c_str());
  return 0;
}

int talk(const std::string& rank, int lines, int per_second) {
  setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  setvbuf(stderr, nullptr, _IOLBF, 1 << 16);
  const auto start = Clock::now();
  for (int line = 0; line < lines; ++line) {
    std::this_thread::sleep_until(start + std::chrono::microseconds(1000000LL * line / per_second));
    const std::string padding(static_cast<std::size_t>(line % 97), 'x');
    fprintf(line % 2 == 0 ? stdout : stderr, "talker %s line %d %s.\n", rank.c_str(), line, padding.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = getenv("RANK");
  const std::string mode = argc > 1 ? argv[1] : "";
  if (rank != nullptr && mode == "work" && argc == 4) return work(rank, atoi(argv[2]), argv[3]);
  if (rank != nullptr && mode == "talk" && argc == 4) return talk(rank, atoi(argv[2]), atoi(argv[3]));
  fprintf(stderr, "usage, as a worker of dtrun: chaos_worker work MS FILE | talk LINES PER_SECOND\n");
  return 64;
}
