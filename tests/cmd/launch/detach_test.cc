// `dtrun -H … --detach` and the way back, as a user types them; a script takes ssh's place, so every host is
// this one.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::detach_test {

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;

// Several on one machine at a time: the processes of this one have its mark in their command lines.
struct Site {
  explicit Site(const std::string& name) : mark(name + std::to_string(getpid())) {
    write_text(folder / "remote_shell", "#!/bin/sh\nshift\nexec \"$@\"\n");
    fs::permissions(folder / "remote_shell", fs::perms::owner_all);
  }
  ~Site() {
    for (const pid_t pid : processes_with(mark)) kill(pid, SIGKILL);
  }

  std::vector<std::string> environment() const {
    return {std::string("PATH=") + DTRUN_BIN_DIR + ":/usr/bin:/bin",
            "XDG_STATE_HOME=" + folder.path().string()};
  }
  std::vector<std::string> words(const std::string& hosts, const std::string& script,
                                 const std::vector<std::string>& options) const {
    std::vector<std::string> argv{kDtrun,    "-H",          hosts,       "--ssh", remote_shell(),
                                  "--chdir", folder.path(), "--rdzv_id", mark};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "sh", "-c", script, mark});
    return argv;
  }
  Ended launch(const std::string& hosts, const std::string& script,
               std::vector<std::string> options = {}) const {
    options.emplace_back("--detach");
    return run(words(hosts, script, options), environment());
  }
  std::vector<std::string> back(const std::string& command, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv{kDtrun, command};
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }
  Ended come_back(const std::string& command, const std::vector<std::string>& more = {}) const {
    return run(back(command, more), environment());
  }
  std::string remote_shell() const { return folder / "remote_shell"; }
  void let_go_on() const { write_text(folder / "go", ""); }
  bool nothing_is_left() const {
    return eventually([&] { return processes_with(mark).empty(); });
  }

  const Folder folder;
  const std::string mark;
};

// Says something, waits for the file, says something else.
const std::string kScript = "echo begun $RANK; while ! test -e go; do sleep 0.1; done; echo over $RANK";

TEST_CASE(
    "a detached job outlives its launch; attach shows all of it, early or late, and ends with its code") {
  const Site site("dta");
  const Ended launched = site.launch("a,b", kScript + "; test $RANK = 0 || { sleep 1; exit 5; }");
  REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
  CHECK(launched.out == "run " + site.mark + " goes on alone: dtrun attach " + site.mark + " | dtrun stop " +
                            site.mark + " | dtrun logs " + site.mark + "\n");
  Process early(site.back("attach"), site.environment());
  CHECK(early.wait_for_out("begun 0"));
  CHECK(early.wait_for_out("begun 1"));
  CHECK(contains(site.come_back("logs", {site.mark}).out, "begun 0"));
  site.let_go_on();
  const Ended seen = early.end();
  CHECK(seen.exit_code == 5);
  CHECK(contains(seen.out, "over 0"));
  CHECK(contains(seen.err, "the job failed: rank 1"));
  CHECK(site.nothing_is_left());
  const Ended late = site.come_back("attach", {site.mark});
  CHECK(late.exit_code == 5);
  for (const char* line : {"begun 0\n", "begun 1\n", "over 0\n", "over 1\n"}) CHECK(contains(late.out, line));
  CHECK(contains(late.err, "the job failed: rank 1"));
  const Ended logs = site.come_back("logs", {"--follow", site.mark});
  CHECK(logs.exit_code == 0);
  CHECK(logs.out.size() == late.out.size());
  const std::size_t failed =
      late.err.find("the job failed: rank 1");  // both hosts say so, and it is shown once
  CHECK(late.err.find("the job failed: rank 1", failed + 1) == std::string::npos);
  const Ended none = site.come_back("attach");
  CHECK(none.exit_code == 69);
  CHECK(contains(none.err, "no detached run goes on; there are: " + site.mark + " (ended)"));
}

TEST_CASE("a host that cannot be called, or knows the run no more, holds up nobody's words") {
  const Site site("dtk");
  REQUIRE(site.launch("a,b", "echo from $RANK").exit_code == 0);
  CHECK(site.come_back("attach").exit_code == 0);  // to the end
  write_text(site.folder / "remote_shell",
             "#!/bin/sh\nif test $1 = b; then exit 9; fi\nshift\nexec \"$@\"\n");
  CHECK(contains(site.come_back("attach", {site.mark}).out, "from 0\n"));
  write_text(site.folder / "remote_shell", "#!/bin/sh\nshift\nexec \"$@\"\n");
  fs::remove_all(site.folder / "dtrun/runs" / (site.mark + ".1"));
  CHECK(contains(site.come_back("attach", {site.mark}).out, "from 0\n"));
}

TEST_CASE("a host that says much is shown whole, also while it says it") {
  const Site site("dtl");
  const std::string script =
      "if test $RANK = 0; then i=0; while test $i -lt 100000; do echo $i of many words that one host alone "
      "says; "
      "i=$((i + 1)); done; fi; echo end of $RANK";
  REQUIRE(site.launch("a,b", script).exit_code == 0);
  for (const std::string command : {"attach", "logs"}) {  // to the end, and after it
    const Ended ended = site.come_back(command, {site.mark});
    CHECK(ended.exit_code == 0);
    CHECK(std::ranges::count(ended.out, '\n') == 100002);
    CHECK(contains(ended.out, "end of 0\n"));
    CHECK(contains(ended.out, "end of 1\n"));
    CHECK(contains(ended.out, "99999 of many"));
  }
}

TEST_CASE("who comes back calls the hosts as the launch did, also from another directory") {
  const Site site("dth");
  std::vector<std::string> words = site.words("a", kScript, {"--detach", "--ssh", "./remote_shell"});
  words.insert(words.begin(), {"env", "-C", site.folder.path()});
  const Ended launched = run(words, site.environment());
  REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
  site.let_go_on();
  const Ended ended = site.come_back("attach", {site.mark});
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(contains(ended.out, "over 0"));
}

TEST_CASE("what comes back to a job may be killed or interrupted, the job goes on") {
  const Site site("dtb");
  REQUIRE(site.launch("a,b", kScript).exit_code == 0);
  for (const int number : {SIGKILL, SIGINT}) {
    CAPTURE(number);
    Process attached(site.back("attach", {site.mark}), site.environment());
    REQUIRE(attached.wait_for_out("begun 1"));
    attached.signal(number);
    const Ended ended = attached.end();
    CHECK(ended.exit_code == 128 + number);
    if (number == SIGINT) CHECK(contains(ended.err, "the job goes on; dtrun stop " + site.mark + " ends it"));
  }
  CHECK(processes_with(site.mark).size() >= 2);
  site.let_go_on();
  const Ended ended = site.come_back("attach", {site.mark});
  CHECK(ended.exit_code == 0);
  CHECK(contains(ended.out, "over 1"));
  CHECK(site.nothing_is_left());
}

TEST_CASE("dtrun stop ends the job on every host") {
  for (const bool now : {false, true}) {
    CAPTURE(now);
    const Site site(now ? "dtc" : "dtd");
    const std::string stubborn = "trap '' TERM INT; while :; do sleep 0.1; done";
    REQUIRE(site.launch("a,b", now ? stubborn : kScript, {"--shutdown_timeout", "100"}).exit_code == 0);
    Process attached(site.back("attach"), site.environment());
    REQUIRE(eventually([&] { return processes_with(site.mark).size() >= 2; }));
    const Ended stopped =
        site.come_back("stop", now ? std::vector<std::string>{"--now"} : std::vector<std::string>{});
    CHECK_MESSAGE(stopped.exit_code == 0, stopped.err);
    CHECK(!contains(stopped.out, "begun"));
    CHECK(site.nothing_is_left());
    CHECK(attached.wait() >= 128);
    CHECK(site.come_back("stop", {site.mark}).exit_code == 0);  // it is
  }
}

TEST_CASE("a detached job whose dtrun was brought keeps it there until it ends") {
  const Site site("dti");
  const std::vector<std::string> without_dtrun{"PATH=/usr/bin:/bin",
                                               "XDG_STATE_HOME=" + site.folder.path().string(),
                                               "XDG_CACHE_HOME=" + (site.folder / "cache").string()};
  const Ended launched = run(site.words("a", kScript, {"--detach"}), without_dtrun);
  REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
  const fs::path cache = site.folder / "cache/dtrun";
  REQUIRE(fs::exists(cache));
  const std::string lock = fs::directory_iterator(cache)->path() / "lock";
  const auto is_kept = [&] { return run({"flock", "-n", "-x", lock, "true"}).exit_code != 0; };
  CHECK(is_kept());
  site.let_go_on();
  CHECK(run(site.back("attach", {site.mark}), without_dtrun).exit_code == 0);
  CHECK(eventually([&] { return !is_kept(); }));
}

TEST_CASE("an agent that was killed takes its workers along, and is told of") {
  const Site site("dte");
  REQUIRE(site.launch("a", "echo $PPID > agent; " + kScript).exit_code == 0);
  Process attached(site.back("attach"), site.environment());
  REQUIRE(attached.wait_for_out("begun 0"));
  kill(std::stoi(read_text(site.folder / "agent")), SIGKILL);
  const Ended ended = attached.end();
  CHECK(ended.exit_code == 69);
  CHECK(contains(ended.err, "a: the agent here ended without a word"));
  CHECK(site.nothing_is_left());
  CHECK(site.come_back("stop", {site.mark}).exit_code == 0);
}

TEST_CASE("a job goes on when there is no room for what it says, and its end is told") {
  const std::string script =
      "echo first line; while ! test -e go; do sleep 0.1; done;"
      "i=0; while test $i -lt 5000; do echo line $i of many; i=$((i + 1)); done; : > done; exit 3";
  // In blocks of 512 bytes; a file that would grow over it is refused, as on a full disk.
  for (const int blocks : {97, 150}) {
    CAPTURE(blocks);
    const Site site("dtg");
    write_text(site.folder / "remote_shell",
               "#!/bin/sh\nshift\nulimit -f " + std::to_string(blocks) + "\nexec \"$@\"\n");
    const Ended launched = site.launch("a", script);
    REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
    CHECK(eventually([&] { return contains(site.come_back("logs", {site.mark}).out, "first line\n"); }));
    Process attached(site.back("attach"), site.environment());
    CHECK(attached.wait_for_out("first line"));
    site.let_go_on();
    CHECK(attached.end().exit_code == 3);
    CHECK(eventually([&] { return fs::exists(site.folder / "done"); }));
    const Ended ended = site.come_back("attach", {site.mark});
    CHECK(ended.exit_code == 3);
    CHECK(contains(ended.out, "first line\n"));
    CHECK(!contains(ended.out, "line 4999 of many\n"));
    CHECK(contains(ended.err, "the disk was full"));
  }
}

TEST_CASE("runs that there are not, or are twice, are told of in one line") {
  const Site site("dtf");
  const Ended unknown = site.come_back("attach", {"nothing"});
  CHECK(unknown.exit_code == 69);
  CHECK(contains(unknown.err, "no detached run nothing; none was detached from here"));
  CHECK(site.launch("a", kScript, {"--rdzv_id", "../x"}).exit_code == 64);
  REQUIRE(site.launch("a", kScript).exit_code == 0);
  const Ended again = site.launch("a", kScript);
  CHECK(again.exit_code == 73);
  CHECK(contains(again.err, "a detached run of this name goes on here"));
  REQUIRE(site.launch("b", kScript, {"--rdzv_id", site.mark + "b"}).exit_code == 0);
  const Ended several = site.come_back("attach");
  CHECK(several.exit_code == 64);
  CHECK(contains(several.err,
                 "several detached runs, name one; there are: " + site.mark + ", " + site.mark + "b"));
  CHECK(site.come_back("stop", {"--now", site.mark + "b"}).exit_code == 0);
  CHECK(site.come_back("stop", {"--now", site.mark}).exit_code == 0);
  fs::remove_all(site.folder / "dtrun/runs");
  const Ended gone = site.come_back("attach", {site.mark});
  CHECK(gone.exit_code == 69);
  CHECK(contains(gone.err, "a: no detached run " + site.mark + " on "));
}

}  // namespace

}  // namespace dtrun::detach_test
