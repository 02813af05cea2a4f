#include "agent/job_registry.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "tests/agent/agent_process.h"

namespace dtrun::agent::job_registry_test {

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

TEST_CASE("a folder that others may write to is passed over, and that is said") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  const RegisteredJob job{"run", "127.0.0.1", 4711, getpid()};
  CHECK(JobEntry(path, job).notice().empty());
  std::filesystem::permissions(path, std::filesystem::perms::all);
  CHECK(JobEntry(path, job).notice() ==
        path.string() + " is not this user's alone, so dtrun status finds this job by --rdzv_endpoint only");
  CHECK(std::filesystem::is_empty(path));
  CHECK(JobEntry(folder.path() / "no/such", job).notice().empty());
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

TEST_CASE("ended runs are listed for ten minutes, of each id the newest") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  constexpr Goodput kSpent{.training = 2.5, .down = 1, .steps_redone = 3};
  const auto end_at = [&](const std::string& run_id, double at, int exit_code) {
    JobEntry(path, {run_id, "127.0.0.1", 4711, getpid()})
        .finish(
            {.job = {}, .ended_at = at, .end = {.exit_code = exit_code, .reason = "why", .goodput = kSpent}});
  };
  end_at("a", 1000, 1);
  end_at("b", 1100, 2);
  end_at("a", 1200, 3);
  auto ends = ended_jobs(path, 1300);
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].job.run_id == "a");
  CHECK(ends[0].end.exit_code == 3);
  CHECK(ends[0].job.port == 4711);
  CHECK(ends[1].end.reason == "why");
  CHECK(ends[1].end.goodput == kSpent);
  CHECK(ended_jobs(path, 1100 + kKeepEndedSeconds).size() == 1);
  CHECK(ended_jobs(path, 1200 + kKeepEndedSeconds).empty());
  CHECK(std::filesystem::is_empty(path));
}

TEST_CASE("many short jobs leave no more than the newest ends") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  for (std::size_t i = 0; i < kMaxEndedJobs + 9; ++i) {
    const auto at = static_cast<double>(i);
    JobEntry(path, {"run" + std::to_string(i), "h", 1, getpid()}).finish({.job = {}, .ended_at = at});
  }
  CHECK(ended_jobs(path, 300).size() == kMaxEndedJobs);
  CHECK(std::distance(std::filesystem::directory_iterator(path), {}) == kMaxEndedJobs);
}

TEST_CASE("files that no agent wrote are no ends, and harm nobody") {
  const test::Folder folder;
  const auto path = folder.path() / "registry";
  JobEntry(path, {"run", "h", 1, getpid()}).finish({.job = {}, .ended_at = 10});
  for (const char* text : {"", "[]", "{\"run_id\":7}", "\xff\xff", R"({"run_id":"r","host":"h","port":"x"})"})
    std::ofstream(path / ("1-" + std::to_string(std::strlen(text)) + ".ended")) << text;
  CHECK(ended_jobs(path, 20).size() == 1);
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

}  // namespace dtrun::agent::job_registry_test
