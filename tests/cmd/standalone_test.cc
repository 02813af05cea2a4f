// A job of one node: its coordinator listens where only this user can reach it.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::standalone_test {

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// The inodes of what listens on a TCP port of this network namespace.
std::set<std::string> listening() {
  std::set<std::string> inodes;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_if_there(table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word, state, inode;
      for (int i = 0; i < 10 && words >> word; ++i) {
        if (i == 3) state = word;
        if (i == 9) inode = word;
      }
      if (state == "0A") inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

int listening_ports_of(pid_t pid) {
  const std::set<std::string> inodes = listening();
  int found = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored))
    found += static_cast<int>(inodes.count(fs::read_symlink(entry.path(), ignored).string()));
  return found;
}

// A user with a folder for temporary files and one for the registry of jobs.
struct User {
  Folder folder;
  fs::path temporary = folder / "tmp";
  Words environment{"XDG_RUNTIME_DIR=" + folder.path().string(), "TMPDIR=" + temporary.string()};

  User() { fs::create_directory(temporary); }
  std::string endpoint() const {
    const Ended status = run({kDtrun, "status", "--json"}, environment);
    const auto runs = nlohmann::json::parse(status.out);
    REQUIRE(runs.size() == 1);
    return runs[0]["endpoint"];
  }
};

const Words kSleeper{kDtrun,        "--rdzv_id", "alone",
                     "--http_port", "off",       "--no_python",
                     "sh",          "-c",        "echo at $MASTER_ADDR; sleep 60"};

TEST_CASE("a job of one node opens no port; its user finds it, and its end leaves nothing") {
  const User user;
  Process job(kSleeper, user.environment);
  REQUIRE(job.wait_for_out("at 127.0.0.1\n"));
  CHECK(listening_ports_of(job.pid()) == 0);
  const std::string endpoint = user.endpoint();
  REQUIRE(endpoint.starts_with("unix:" + user.temporary.string() + "/"));
  const fs::path socket = endpoint.substr(5);
  struct stat facts {};
  REQUIRE(stat(socket.parent_path().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0700);
  for (const Words& question : {Words{}, Words{"--rdzv_endpoint", endpoint}}) {
    Words words{kDtrun, "status"};
    words.insert(words.end(), question.begin(), question.end());
    const Ended status = run(words, user.environment);
    CHECK(status.exit_code == 0);
    CHECK(contains(status.out, "run alone at " + endpoint + ": running"));
  }
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
  CHECK(fs::is_empty(user.temporary));
  CHECK(contains(run({kDtrun, "status"}, user.environment).out, "over, exit code 143"));
}

TEST_CASE("an agent that is killed leaves no socket") {
  const User user;
  Process job(kSleeper, user.environment);
  REQUIRE(job.wait_for_out("at 127"));
  REQUIRE(!fs::is_empty(user.temporary));
  job.signal(SIGKILL);
  job.wait();
  CHECK(eventually([&] { return fs::is_empty(user.temporary); }));
}

TEST_CASE("a folder for temporary files that is too deep for a socket's name is no obstacle") {
  User user;
  const fs::path deep = user.temporary / std::string(120, 'd');
  fs::create_directory(deep);
  user.environment.push_back("TMPDIR=" + deep.string());
  std::swap(user.environment[1], user.environment[2]);
  Process job(kSleeper, user.environment);
  REQUIRE_MESSAGE(job.wait_for_out("at 127"), job.err());
  const std::string endpoint = user.endpoint();
  CHECK(endpoint.starts_with("unix:/tmp/dtrun-"));
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
  CHECK(!fs::exists(fs::path(endpoint.substr(5)).parent_path()));
}

TEST_SUITE("root") {
  TEST_CASE("no other user gets in, nor takes an agent's place") {
    if (geteuid() != 0) return skip("needs root, to be somebody else");
    const auto as_nobody = [](Words words) {
      words.insert(words.begin(), {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
      return words;
    };
    const User user;
    fs::permissions(user.folder.path(), fs::perms::all);
    fs::permissions(user.temporary, fs::perms::all);
    Process job(kSleeper, user.environment);
    REQUIRE(job.wait_for_out("at 127"));
    const std::string endpoint = user.endpoint();
    const Ended unauthenticated =
        run(as_nobody({kDtrun, "status", "--rdzv_endpoint", endpoint}), user.environment);
    CHECK(unauthenticated.exit_code == 69);
    CHECK(contains(unauthenticated.err, "Permission denied"));

    Process others(as_nobody(kSleeper), {"XDG_RUNTIME_DIR=/nonexistent", user.environment[1]});
    REQUIRE_MESSAGE(others.wait_for_out("at 127"), others.err());
    std::string there;
    for (const auto& entry : fs::directory_iterator(user.temporary))
      if ("unix:" + (entry.path() / "coordinator").string() != endpoint)
        there = "unix:" + (entry.path() / "coordinator").string();
    const Ended fooled = run({kDtrun, "status", "--rdzv_endpoint", there});
    CHECK(fooled.exit_code == 69);
    CHECK(contains(fooled.err, "another user's process listens there"));
  }
}

}  // namespace

}  // namespace dtrun::standalone_test
