#include "agent/job_registry.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>

#include "tests/agent/agent_process.h"

namespace dtrun::agent {

TEST_CASE("a job is listed from another process as long as its entry lives") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  std::optional<JobEntry> entry;
  entry.emplace(path, RegisteredJob{"run", "127.0.0.1", 4711, getpid()});
  // A process does not see its own locks, so another one looks.
  const auto listed_elsewhere = [&] {
    const pid_t child = fork();
    if (child == 0) {
      const auto jobs = registered_jobs(path);
      _exit(jobs.size() == 1 && jobs[0].run_id == "run" && jobs[0].port == 4711 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  CHECK(listed_elsewhere());
  entry.reset();
  CHECK_FALSE(listed_elsewhere());
  CHECK(std::filesystem::is_empty(path));
}

TEST_CASE("an entry that is being made is not taken for a dead agent's") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  const pid_t looker = fork();
  if (looker == 0) {
    for (;;) registered_jobs(path);
  }
  int there = 0;
  for (int i = 0; i < 10000; ++i) {
    const JobEntry entry(path, {"run", "127.0.0.1", 4711, getpid()});
    there += std::filesystem::is_empty(path) ? 0 : 1;
  }
  kill(looker, SIGKILL);
  waitpid(looker, nullptr, 0);
  CHECK(there == 10000);
}

TEST_CASE("what a killed agent left behind is removed, and other people's folders are not trusted") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::ofstream(path / "1-dead.json") << R"({"run_id":"r","host":"h","port":1,"pid":1})";
  CHECK(registered_jobs(path).empty());
  CHECK(std::filesystem::is_empty(path));
  std::filesystem::permissions(path, std::filesystem::perms::all);
  const JobEntry refused(path, {"run", "h", 1, 1});
  CHECK(std::filesystem::is_empty(path));
}

}  // namespace dtrun::agent
