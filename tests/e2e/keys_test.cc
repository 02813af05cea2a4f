// A job with a key, as a user starts it: who has the key takes part, who has not is told so and gets nothing,
// and the key itself turns up nowhere.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;

struct Site {
  Site() {
    for (const std::string name : {"right", "wrong"}) {
      const Ended made = run({kDtrun, "key", path(name)});
      REQUIRE_MESSAGE(made.exit_code == 0, made.err);
      REQUIRE(!contains(made.err + made.out, key(name)));
    }
  }
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  std::string key(const std::string& name) const {
    const std::string line = read_text(path(name));
    return line.substr(0, line.size() - 1);
  }
  std::string fingerprint(const std::string& name) const {
    const Ended plan = run({kDtrun, "--dry_run", "--token_file", path(name), "--no_python", "true"});
    REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
    CHECK(!contains(plan.out, key(name)));
    const std::string before = "\"key_fingerprint\": \"";
    const std::size_t at = plan.out.find(before);
    REQUIRE(at != std::string::npos);
    return plan.out.substr(at + before.size(), 8);
  }
  // One of two nodes, whose only worker prints its environment.
  std::vector<std::string> node(const std::vector<std::string>& more) const {
    std::vector<std::string> argv{
        kDtrun,      "--nnodes",  "2", "--rdzv_endpoint", "127.0.0.1:" + std::to_string(port),
        "--log_dir", path("logs")};
    argv.insert(argv.end(), more.begin(), more.end());
    argv.insert(argv.end(), {"--no_python", "env"});
    return argv;
  }

  const Folder folder;
  const int port = free_port();
};

TEST_CASE("nodes with the same key meet; others end at once, and the key turns up nowhere") {
  const Site site;
  const std::string right = site.fingerprint("right"), wrong = site.fingerprint("wrong");
  REQUIRE(right != wrong);
  Process first(site.node({"--token_file", site.path("right")}));
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));

  const Ended other = run(site.node({}), {"DTRUN_TOKEN_FILE=" + site.path("wrong")});
  CHECK(other.exit_code == 77);
  CHECK(contains(other.err, right));
  CHECK(contains(other.err, wrong));
  const Ended none = run(site.node({}));
  CHECK(none.exit_code == 77);
  CHECK(contains(none.err, "wants the job key " + right));

  const Ended second = run(site.node({}), {"DTRUN_TOKEN=" + site.key("right")});
  CHECK_MESSAGE(second.exit_code == 0, second.err);
  const Ended done = first.end();
  CHECK_MESSAGE(done.exit_code == 0, done.err);

  // Its name is there for --token_file, but nobody's key: in workers' environments, terminals and files.
  std::string said = done.out + done.err + second.out + second.err + other.err + none.err;
  REQUIRE(contains(second.out, "WORLD_SIZE=2"));
  CHECK(!contains(second.out, "DTRUN_TOKEN="));
  for (const auto& entry : fs::recursive_directory_iterator(site.path("logs")))
    if (entry.is_regular_file()) said += read_text(entry.path());
  REQUIRE(contains(said, "\"disconnected\""));
  CHECK(!contains(said, site.key("right")));
  CHECK(!contains(said, site.key("wrong")));
}

TEST_CASE("a store with a key serves those who have it, and tells nobody else what runs there") {
  const Site site;
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", std::to_string(site.port), "--token_file",
                 site.path("right")});
  REQUIRE(store.wait_for_out("listening"));
  CHECK(contains(store.out(), site.fingerprint("right")));
  const std::string endpoint = "127.0.0.1:" + std::to_string(site.port);
  const Ended stranger = run({kDtrun, "status", "--rdzv_endpoint", endpoint});
  CHECK(stranger.exit_code == 77);
  Process node(site.node({"--token_file", site.path("right"), "--rdzv_id", "job7"}));
  REQUIRE(node.wait_for_err("joined 1 of 2 nodes"));
  const Ended friendly =
      run({kDtrun, "status", "--rdzv_endpoint", endpoint}, {"DTRUN_TOKEN=" + site.key("right")});
  CHECK_MESSAGE(friendly.exit_code == 0, friendly.err);
  CHECK(contains(friendly.out, "job7"));
  node.signal(SIGINT);
  CHECK(node.wait() == 130);
  store.signal(SIGTERM);
  CHECK(store.wait() == 143);
}

TEST_CASE("a job that runs here is not hidden from who looks without its key") {
  const Site site;
  const std::vector<std::string> user{"XDG_RUNTIME_DIR=" + site.folder.path().string()};
  CHECK(run({kDtrun, "--rdzv_id", "ended", "--no_python", "true"}, user).exit_code == 0);
  Process locked(
      {kDtrun, "--token_file", site.path("right"), "--no_python", "sh", "-c", "echo at work; sleep 60"},
      user);
  REQUIRE(locked.wait_for_out("at work"));
  const Ended status = run({kDtrun, "status"}, user);
  CHECK(status.exit_code == 0);
  CHECK(contains(status.out, "run ended "));
  CHECK(contains(status.out, "wants the job key " + site.fingerprint("right")));
  CHECK(contains(run({kDtrun, "status", "--token_file", site.path("right")}, user).out, ": running, "));
  locked.signal(SIGTERM);
  CHECK(locked.wait() == 143);
}

TEST_CASE("files that are no keys, or everybody's, are refused before anything starts") {
  const Site site;
  const auto refusal = [&](const std::vector<std::string>& options, const std::string& variable = "") {
    std::vector<std::string> argv{kDtrun, "--standalone"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--no_python", "touch", site.path("started")});
    return run(argv, variable.empty() ? std::vector<std::string>() : std::vector{variable});
  };
  CHECK(refusal({"--token_file", site.path("absent")}).exit_code == 66);
  CHECK(refusal({"--token_file", site.folder.path().string()}).exit_code == 66);
  CHECK(refusal({"--token_file="}).exit_code == 64);
  CHECK(refusal({"--token_file", "/dev/null"}).exit_code == 77);
  CHECK(refusal({"--token_file", "/dev/zero"}).exit_code == 77);
  CHECK(refusal({}, "DTRUN_TOKEN=hunter2").exit_code == 77);
  fs::permissions(site.path("wrong"), fs::perms::others_read, fs::perm_options::add);
  const Ended shown = refusal({"--token_file", site.path("wrong")});
  CHECK(shown.exit_code == 77);
  CHECK(contains(shown.err, "chmod 600"));
  CHECK(!fs::exists(site.path("started")));
  CHECK(refusal({}, "DTRUN_TOKEN=").exit_code == 0);
  CHECK(fs::exists(site.path("started")));
  CHECK(run({kDtrun, "key", site.path("right")}).exit_code == 73);
}

}  // namespace
