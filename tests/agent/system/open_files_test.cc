// The limit on open files, which a process of its own lowers.
#include "agent/system/open_files.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

using namespace dtrun::agent;

namespace {

// The result of `ask` (0 to 255) in a process that may have `soft` open files, and may raise that to `hard`.
int limited(rlim_t soft, rlim_t hard, const std::function<int()>& ask) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit limit{soft, hard};
    _exit(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? ask() : 255);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
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
