// A job with a key, as a user starts it: a node with the key takes part, a node without is refused with a
// message and gets no data, and the key itself appears nowhere.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::keys_test {

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
    const Ended plan = run({kDtrun, "--dry_run", "--nnodes", "2", "--rdzv_endpoint", "127.0.0.1",
                            "--key_file", path(name), "--no_python", "true"});
    REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
    CHECK(!contains(plan.out, key(name)));
    const std::string before = "\"key_fingerprint\": \"";
    const std::size_t at = plan.out.find(before);
    REQUIRE(at != std::string::npos);
    return plan.out.substr(at + before.size(), 8);
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port); }
  // One of two nodes, whose only worker prints its environment.
  std::vector<std::string> node(const std::vector<std::string>& more) const {
    std::vector<std::string> argv{kDtrun,     "--nnodes",  "2",         "--rdzv_endpoint",
                                  endpoint(), "--log_dir", path("logs")};
    argv.insert(argv.end(), more.begin(), more.end());
    argv.insert(argv.end(), {"--no_python", "env"});
    return argv;
  }

  const Folder folder;
  const int port = free_port();
};

TEST_CASE("the job's terminal hears of a node that has no key") {
  const Site site;
  Process first(site.node({"--key_file", site.path("right")}));
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));
  CHECK(run(site.node({"--insecure"})).exit_code == 77);
  CHECK(first.wait_for_err("127.0.0.1 was turned away: it has another job key than this node"));
  first.signal(SIGTERM);
  first.end();
}

TEST_CASE("nodes with the same key meet; others end at once, and the key turns up nowhere") {
  const Site site;
  const std::string right = site.fingerprint("right"), wrong = site.fingerprint("wrong");
  REQUIRE(right != wrong);
  Process first(site.node({"--key_file", site.path("right")}));
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));

  const Ended other = run(site.node({}), {"DTRUN_KEY_FILE=" + site.path("wrong")});
  CHECK(other.exit_code == 77);
  CHECK(contains(other.err, right));
  CHECK(contains(other.err, wrong));
  CHECK(contains(other.err, "DTRUN_KEY_FILE=" + site.path("wrong")));
  CHECK(first.wait_for_err("127.0.0.1 was turned away: it has another job key than this node"));
  const Ended none = run(site.node({"--insecure"}));
  CHECK(none.exit_code == 77);
  CHECK(contains(none.err, "wants the job key " + right + ", and this node has none"));
  const Ended users = run(site.node({}));
  CHECK(users.exit_code == 77);
  CHECK(contains(users.err, "has the job key " + right + ", and this node has "));
  CHECK(contains(other.err, ": give it the key file of the coordinator's node, or give all nodes the same "));
  CHECK(contains(none.err,
                 ": give it the coordinator's with --key_file FILE, or start all nodes with --insecure"));
  CHECK(contains(users.err, ": copy its ~/.config/dtrun/key to this node, or give all nodes the same "));

  const Ended second = run(site.node({}), {"DTRUN_KEY=" + site.key("right")});
  CHECK_MESSAGE(second.exit_code == 0, second.err);
  const Ended done = first.end();
  CHECK_MESSAGE(done.exit_code == 0, done.err);

  // Its name is there for --key_file, but nobody's key: in workers' environments, terminals and files.
  std::string said = done.out + done.err + second.out + second.err + other.err + none.err;
  REQUIRE(contains(second.out, "WORLD_SIZE=2"));
  CHECK(!contains(second.out, "DTRUN_KEY="));
  CHECK(!contains(second.out, "DTRUN_KEY_FD="));
  for (const auto& entry : fs::recursive_directory_iterator(site.path("logs")))
    if (entry.is_regular_file()) said += read_text(entry.path());
  REQUIRE(contains(said, "\"disconnected\""));
  CHECK(!contains(said, site.key("right")));
  CHECK(!contains(said, site.key("wrong")));
}

TEST_CASE("a store with a key serves those who have it, and tells nobody else what runs there") {
  const Site site;
  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", std::to_string(site.port), "--key_file",
                 site.path("right")});
  REQUIRE(store.wait_for_out("listening"));
  CHECK(contains(store.out(), site.fingerprint("right")));
  const std::string endpoint = site.endpoint();
  const Ended unauthenticated = run({kDtrun, "status", "--rdzv_endpoint", endpoint});
  CHECK(unauthenticated.exit_code == 77);
  Process node(site.node({"--key_file", site.path("right"), "--rdzv_id", "job7"}));
  REQUIRE(node.wait_for_err("joined 1 of 2 nodes"));
  const Ended friendly =
      run({kDtrun, "status", "--rdzv_endpoint", endpoint}, {"DTRUN_KEY=" + site.key("right")});
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
  Process locked(site.node({"--key_file", site.path("right"), "--rdzv_id", "locked"}), user);
  REQUIRE(locked.wait_for_err("joined 1 of 2 nodes"));
  const Ended status = run({kDtrun, "status"}, user);
  CHECK(status.exit_code == 0);
  CHECK(contains(status.out, "run ended "));
  CHECK(contains(status.out, "has the job key " + site.fingerprint("right")));
  CHECK(contains(run({kDtrun, "status", "--key_file", site.path("right")}, user).out,
                 "run locked at " + site.endpoint()));
  locked.signal(SIGTERM);
  CHECK(locked.wait() == 143);
}

TEST_CASE("files that are no keys, or everybody's, are refused before anything starts") {
  const Site site;
  const auto refusal = [&](const std::vector<std::string>& options, const std::string& variable = "") {
    std::vector<std::string> argv{kDtrun, "--nnodes", "1", "--rdzv_endpoint", site.endpoint()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--no_python", "touch", site.path("started")});
    return run(argv, variable.empty() ? std::vector<std::string>() : std::vector{variable});
  };
  CHECK(refusal({"--key_file", site.path("absent")}).exit_code == 66);
  CHECK(refusal({"--key_file", site.folder.path().string()}).exit_code == 66);
  CHECK(refusal({"--key_file="}).exit_code == 64);
  CHECK(refusal({"--key_file", "/dev/null"}).exit_code == 77);
  CHECK(refusal({"--key_file", "/dev/zero"}).exit_code == 77);
  CHECK(refusal({}, "DTRUN_KEY=hunter2").exit_code == 77);
  fs::permissions(site.path("wrong"), fs::perms::others_read, fs::perm_options::add);
  const Ended shown = refusal({"--key_file", site.path("wrong")});
  CHECK(shown.exit_code == 77);
  CHECK(contains(shown.err, "chmod 600"));
  fs::permissions(site.path("wrong"),
                  fs::perms::owner_read | fs::perms::owner_write | fs::perms::others_write);
  const Ended open = refusal({"--key_file", site.path("wrong")});
  CHECK(open.exit_code == 77);
  CHECK(contains(open.err, "every user of this machine may write to this key"));
  fs::permissions(site.path("wrong"), fs::perms::owner_read | fs::perms::owner_write);
  if (geteuid() == 0) {
    REQUIRE(chown(site.path("wrong").c_str(), 4242, 4242) == 0);
    const Ended foreign = refusal({"--key_file", site.path("wrong")});
    CHECK(foreign.exit_code == 77);
    CHECK(contains(foreign.err, "belongs to the user with the number 4242"));
  }
  CHECK(!fs::exists(site.path("started")));
  CHECK(refusal({}, "DTRUN_KEY=").exit_code == 0);
  CHECK(fs::exists(site.path("started")));
  CHECK(run({kDtrun, "key", site.path("right")}).exit_code == 73);
}

// A user with a home and jobs of its own.
std::vector<std::string> user_of(const Site& site, const std::string& home = "home") {
  fs::create_directories(site.path(home));
  return {"XDG_CONFIG_HOME=" + site.path(home), "XDG_RUNTIME_DIR=" + site.folder.path().string()};
}

TEST_CASE("a worker does not find the key in the environment that its agent was started with") {
  const Site site;
  std::vector<std::string> argv{kDtrun,
                                "--nnodes",
                                "1",
                                "--rdzv_endpoint",
                                site.endpoint(),
                                "--no_python",
                                "sh",
                                "-c",
                                "tr '\\0' '\\n' </proc/$PPID/environ | grep -c '^PATH='; tr '\\0' '\\n' "
                                "</proc/$PPID/environ"};
  const Ended job = run(argv, {"DTRUN_KEY=" + site.key("right")});
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK(contains(job.out, "PATH="));  // it was shown at all
  CHECK(!contains(job.out + job.err, site.key("right").substr(5, 20)));
}

TEST_CASE("nodes of one home meet with a key that nobody made, and so do status and store") {
  const Site site;
  const auto user = user_of(site);
  Process first(site.node({"--rdzv_id", "job7"}), user);
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));
  const std::string key = site.key("home/dtrun/key");
  CHECK(key.starts_with("dtk1_"));
  for (const std::vector<std::string>& place :
       {std::vector<std::string>{}, {"--rdzv_endpoint", site.endpoint()}}) {
    std::vector<std::string> words{kDtrun, "status"};
    words.insert(words.end(), place.begin(), place.end());
    const Ended status = run(words, user);
    CHECK(status.exit_code == 0);
    CHECK(contains(status.out, "run job7 at " + site.endpoint()));
  }
  // Another home, as where nodes do not share one: the second to come has made a key of its own.
  const Stopwatch watch;
  const Ended unauthenticated = run(site.node({"--rdzv_id", "job7"}), user_of(site, "other"));
  CHECK(watch.fair() < std::chrono::seconds(1));
  CHECK(unauthenticated.exit_code == 77);
  CHECK(contains(unauthenticated.err, "copy its ~/.config/dtrun/key to this node"));
  CHECK(contains(unauthenticated.err, site.path("other/dtrun/key")));
  CHECK(first.wait_for_err("127.0.0.1 was turned away: it has another job key than this node"));
  CHECK(contains(first.err(), site.path("home/dtrun/key")));
  const Ended second = run(site.node({"--rdzv_id", "job7"}), user);
  CHECK_MESSAGE(second.exit_code == 0, second.err);
  const Ended done = first.end();
  CHECK_MESSAGE(done.exit_code == 0, done.err);
  CHECK(!contains(done.out + done.err + second.out + second.err, key));
  CHECK(!contains(done.err, "plain text"));

  Process store({kDtrun, "store", "--bind", "127.0.0.1", "--port", "0"}, user);
  REQUIRE(store.wait_for_out("who have the key "));
}

TEST_CASE("plain text is said on every node, and a key beside it refused") {
  const Site site;
  const auto user = user_of(site);
  Process first(site.node({"--insecure", "--rdzv_id", "open"}), user);
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));
  // Found among this user's jobs; asked for by its endpoint it is one without the user's key.
  CHECK(contains(run({kDtrun, "status"}, user).out, "run open at " + site.endpoint()));
  CHECK(run({kDtrun, "status", "--insecure", "--rdzv_endpoint", site.endpoint()}, user).exit_code == 0);
  auto with_variable = user;
  with_variable.push_back("DTRUN_INSECURE=1");
  const Ended second = run(site.node({"--rdzv_id", "open"}), with_variable);
  const Ended done = first.end();
  CHECK(second.exit_code == 0);
  CHECK(done.exit_code == 0);
  const std::string text =
      "plain text: any user of this machine who can connect to " + site.endpoint() + " may join ";
  CHECK_MESSAGE(contains(done.err, text + "(--insecure)\n"), done.err);
  CHECK_MESSAGE(contains(second.err, text + "(DTRUN_INSECURE)\n"), second.err);
  CHECK(!fs::exists(site.path("home/dtrun")));
  CHECK(run(site.node({"--insecure", "--key_file", site.path("right")})).exit_code == 64);
  CHECK(run({kDtrun, "store", "--insecure"}, {"DTRUN_KEY=" + site.key("right")}).exit_code == 64);
  Process store({kDtrun, "store", "--insecure", "--port", "0"}, user);
  REQUIRE(store.wait_for_out("listening on port"));
  CHECK(contains(store.out(), "plain text: anybody who can connect to "));
}

TEST_CASE("a key comes on a descriptor too, and goes no further") {
  const Site site;
  const std::string right = site.path("right");
  const auto node = [&site](const std::vector<std::string>& options) {
    std::vector<std::string> argv = site.node(options);
    argv.pop_back();
    return joined(argv, {"sh", "-c",
                         "env; [ ! -e /proc/self/fd/7 ] || echo open; [ ! -e /proc/$PPID/fd/7 ] || "
                         "readlink /proc/$PPID/fd/7"});
  };
  Process first(node({"--key_file", right}));
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));
  const Ended second =
      run(joined({"sh", "-c", "exec \"$@\" 7<" + right, "sh"}, node({})), {"DTRUN_KEY_FD=7"});
  CHECK_MESSAGE(second.exit_code == 0, second.err);
  CHECK(!contains(second.out, "DTRUN_KEY_FD"));
  CHECK(!contains(second.out, right));
  CHECK(!contains(second.out, "open\n"));
  CHECK(first.end().exit_code == 0);
  CHECK(run(site.node({}), {"DTRUN_KEY_FD=7"}).exit_code == 66);
}

TEST_CASE("without a home nodes beyond loopback refuse, and a dry run makes nothing") {
  const Site site;
  const std::vector<std::string> homeless{"XDG_CONFIG_HOME=/nonexistent/config"};
  const std::vector<std::string> far{kDtrun,      "--nnodes",    "2",   "--rdzv_endpoint",
                                     "192.0.2.1", "--no_python", "true"};
  const Ended refused = run(far, homeless);
  CHECK(refused.exit_code == 77);
  CHECK(contains(refused.err, "no job key (/nonexistent/config/dtrun/key cannot be made: "));
  CHECK(contains(refused.err, "export DTRUN_KEY=KEY (the same on each"));
  const Ended store = run({kDtrun, "store", "--port", "0"}, homeless);
  CHECK(store.exit_code == 77);
  CHECK(contains(store.err, "export DTRUN_KEY=KEY (the same on each"));  // a pipe may be a scheduler's log
  std::vector<std::string> dry = far;
  dry.insert(dry.begin() + 1, "--dry_run");
  CHECK(run(dry, user_of(site)).exit_code == 0);
  CHECK(fs::is_empty(site.path("home")));
}

// A folder in which `argv` may leave a core file, of any size.
std::vector<std::string> in(const fs::path& folder, const std::vector<std::string>& argv) {
  std::vector<std::string> words{"sh", "-c", "cd \"$0\" && ulimit -c unlimited && exec \"$@\"",
                                 folder.string()};
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

TEST_SUITE("core_files") {
  TEST_CASE("who has a key leaves no core file, and the workers may") {
    const Site site;
    const auto aborted = [&](const std::string& name, const std::vector<std::string>& options) {
      const fs::path folder = site.path(name);
      fs::create_directory(folder);
      std::vector<std::string> argv{kDtrun, "store", "--port", "0"};
      argv.insert(argv.end(), options.begin(), options.end());
      Process store(in(folder, argv));
      if (!store.wait_for_out("listening")) return false;
      store.signal(SIGABRT);
      return store.wait() == 128 + SIGABRT && !fs::is_empty(folder);
    };
    if (!aborted("open", {"--insecure"})) return skip("this machine keeps no core file where a process was");
    CHECK(!aborted("locked", {"--key_file", site.path("right")}));
    REQUIRE(fs::is_empty(site.path("locked")));

    std::vector<std::string> node{kDtrun,
                                  "--nnodes",
                                  "1",
                                  "--rdzv_endpoint",
                                  site.endpoint(),
                                  "--key_file",
                                  site.path("right"),
                                  "--no_python",
                                  "sh",
                                  "-c",
                                  "echo worker: $(ulimit -c); grep core /proc/$PPID/limits"};
    const Ended job = run(in(site.folder.path(), node));
    CHECK(contains(job.out, "worker: unlimited\n"));
    std::string limit = job.out.substr(job.out.find("Max core file size") + 18);
    CHECK(limit.substr(limit.find_first_not_of(' '), 2) == "1 ");
  }
}

}  // namespace

}  // namespace dtrun::keys_test
