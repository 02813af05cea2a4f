// The limits on open files and on memory, which a process of its own lowers.
#include "agent/system/resource_limits.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>
#include <vector>

namespace dtrun::resource_limits_test {

using namespace dtrun::agent;

namespace {

// The result of `ask` (0 to 255) in a process with this limit on `resource`.
int limited_in(__rlimit_resource resource, const rlimit& limit, const std::function<int()>& ask) {
  const pid_t pid = fork();
  if (pid == 0) _exit(setrlimit(resource, &limit) == 0 ? ask() : 255);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// The same in a process that may have `soft` open files, and may raise that to `hard`.
int limited(rlim_t soft, rlim_t hard, const std::function<int()>& ask) {
  return limited_in(RLIMIT_NOFILE, {soft, hard}, ask);
}

// The same in a process that may take so much more address space.
int with_memory(std::size_t more, const std::function<int()>& ask) {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
  return limited_in(RLIMIT_AS, {most, most}, ask);
}

}  // namespace

TEST_CASE("40 files and 6 for each worker are enough, one fewer is refused") {
  const auto ask = [] { return allow_open_files(2, 1).status().exit_code(); };
  CHECK(limited(30, 52, ask) == 0);
  CHECK(limited(30, 51, ask) == dtrun::kExitOsError);
}

TEST_CASE(
    "the limit is raised for workers, nodes and unauthenticated peers, as far as that goes, and never "
    "lowered") {
  const auto raised = [] {
    if (!allow_open_files(2, 10).ok()) return 255;
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(limit.rlim_cur / 10) : 255;
  };
  CHECK(limited(30, 2000, raised) == (62 + 512) / 10);
  CHECK(limited(30, 200, raised) == 20);
  CHECK(limited(30, 59, raised) == 5);
  CHECK(limited(630, 2000, raised) == 63);
}

TEST_CASE("unauthenticated peers get what workers and nodes leave, and no more than they may have at most") {
  const auto left = [] { return static_cast<int>(allow_open_files(2, 10).value() / 4); };
  CHECK(limited(30, 55, left) == 0);
  CHECK(limited(30, 62, left) == 0);
  CHECK(limited(30, 102, left) == 40 / 4);
  CHECK(limited(30, 2000, left) == 512 / 4);
  CHECK(limited(2000, 2000, left) == 512 / 4);
}

TEST_CASE("a limit on memory leaves the stacks of all threads, or is refused by its size") {
  const auto ask = [] { return check_memory_limit().exit_code(); };
  CHECK(with_memory(32 << 20, ask) == dtrun::kExitOsError);
  CHECK(with_memory(std::size_t{4} << 30, ask) == 0);
  const auto starts_twelve = [] {
    if (!check_memory_limit().ok()) return 1;
    std::vector<std::thread> threads;
    for (int i = 0; i < 12; ++i) threads.emplace_back([] { std::vector<char>(1024, 'x'); });
    for (std::thread& thread : threads) thread.join();
    return 0;
  };
  // What is allowed is enough, at whatever limit: nothing throws.
  for (std::size_t more = 16; more <= 1024; more += 16) CHECK(with_memory(more << 20, starts_twelve) <= 1);
}

}  // namespace dtrun::resource_limits_test
