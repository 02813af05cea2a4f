// `dtrun -H` as a user types it, where a script takes ssh's place: it drops the host's name and runs the
// rest, so every host is this one. tests/e2e has real sshds.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::hosts_test {

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;

struct Site {
  Site() {
    write_text(remote_shell(), "#!/bin/sh\nshift\nexec \"$@\"\n");
    fs::permissions(remote_shell(), fs::perms::owner_all);
  }
  std::string remote_shell() const { return folder / "remote_shell"; }
  std::string path(const std::string& name) const { return folder / name; }
  std::vector<std::string> words(const std::string& hosts, const std::vector<std::string>& more) const {
    std::vector<std::string> argv{kDtrun, "-H", hosts, "--ssh", remote_shell(), "--chdir", folder.path()};
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }
  // dtrun is in the far end's PATH, so it need not be brought there.
  std::vector<std::string> environment(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> entries{std::string("PATH=") + DTRUN_BIN_DIR + ":/usr/bin:/bin"};
    entries.insert(entries.end(), more.begin(), more.end());
    return entries;
  }
  Ended launch(const std::string& hosts, const std::vector<std::string>& more,
               const std::vector<std::string>& variables = {}) const {
    return run(words(hosts, more), environment(variables));
  }

  const Folder folder;
};

// Bytes that shells, formats and encodings stumble over; all but NUL.
std::string awkward(std::mt19937& random, std::size_t longest) {
  static const std::vector<std::string> kParts{" ",  "'",    "\"",   "\\", "\n", "\t", "$(x)", "`x`", "!",
                                               "*",  "(x2)", "{}",   "#",  "%s", "\r", "ü",    "=",   "-",
                                               "\1", "\xff", "[a]b", "~",  ";",  "&",  "|",    "<",   "a"};
  std::string text;
  while (text.size() < random() % (longest + 1)) text += kParts[random() % kParts.size()];
  return text;
}

std::string own_name() {
  const std::string line = output_of({"hostname"});
  return line.substr(0, line.find('\n'));
}

TEST_CASE("words and environment arrive byte for byte, many times over") {
  const Site site;
  std::mt19937 random(15);
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    std::vector<std::string> more{"--", "sh", "-c", "printf '%s\\0' \"$@\" \"$AWKWARD\" > words.$RANK", "x"};
    std::string expected;
    for (int i = 0; i < 125; ++i) {
      more.push_back(awkward(random, round == 0 ? 20'000 : 40));
      expected += more.back() + std::string(1, '\0');
      if (round == 0 && i == 3) break;
    }
    const std::string value = awkward(random, 2000);
    const Ended ended = site.launch("a,b", more, {"AWKWARD=" + value});
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    for (const char* rank : {"0", "1"})
      CHECK(read_text(site.path(std::string("words.") + rank)) == expected + value + std::string(1, '\0'));
  }
}

TEST_CASE("ranks follow the hosts, slots count, and the output says where it comes from") {
  const Site site;
  const Ended ended =
      site.launch("a:2,b", {"--log_prefix", "<{rank}>", "--", "sh", "-c", "echo $GROUP_RANK $WORLD_SIZE"});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  for (const char* line : {"<0> 0 3\n", "<1> 0 3\n", "<2> 1 3\n"}) CHECK(contains(ended.out, line));
}

TEST_CASE("the failed worker's exit code is the launch's, and its report is shown once") {
  const Site site;
  const Ended ended = site.launch("a,b", {"--", "sh", "-c", "sleep 0.3; exit $((RANK * 3))"});
  CHECK(ended.exit_code == 3);
  const std::size_t first = ended.err.find("the job failed: rank 1");
  REQUIRE(first != std::string::npos);
  CHECK(ended.err.find("the job failed", first + 1) == std::string::npos);
}

TEST_CASE("what is missing on the hosts is told once, and nothing starts") {
  const Site site;
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    const Ended ended = site.launch("a,b", more);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 66);
    CHECK(contains(ended.err, "a, b: " + why));
    CHECK(contains(ended.err, "0 of 2 hosts can run the job; nothing was started"));
  };
  refused({"--chdir", "/nowhere", "true"}, "/nowhere: No such file or directory");
  refused({"no-such-program"}, "no-such-program: no such program in PATH");
  refused({"missing.py"}, "missing.py: No such file or directory");
}

TEST_CASE("wrong command lines are told before any host is called") {
  const Site site;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Ended ended = run(more, site.environment());
    CAPTURE(ended.err);
    CHECK((ended.exit_code == 64 || ended.exit_code == 66 || ended.exit_code == 78));
    CHECK(contains(ended.err, why));
  };
  refused(site.words("a,b[", {"true"}), "'[' without ']'");
  refused(site.words("a,b", {"--node_rank", "1", "true"}), "--node_rank is for one node's own command line");
  refused(site.words("a,b", {"--nnodes", "3", "true"}), "2 hosts are named");
  refused(site.words("a,b", {"--include", "c", "true"}), "c");
  refused(site.words("a,b", {"-x", "NOT A NAME=1", "true"}), "-x: expected NAME");
  refused(site.words("a,b", {"missing.json"}), "missing.json");
  refused({kDtrun, "--hostfile", site.path("none"), "true"}, "No such file or directory");
  refused({kDtrun, "-H", "a", "--hostfile", "b", "true"}, "exclude each other");
  refused(site.words("a,b", {}), "nothing to run");
  const auto without_hosts = [&](std::vector<std::string> more) {
    const std::string option = more[0];
    more.insert(more.begin(), kDtrun);
    more.insert(more.end(), {"--", "touch", site.path("started")});
    refused(more, option + " is for a job on named hosts");
    CHECK(!fs::exists(site.path("started")));
  };
  without_hosts({"--check"});
  without_hosts({"--detach"});
  refused({kDtrun, "--detach", "true"}, "where sshd runs; without it: setsid -f dtrun");
  without_hosts({"--include", "a"});
  without_hosts({"--chdir", "/"});
}

TEST_CASE("--dry_run shows what would travel, without secrets; -x decides") {
  const Site site;
  const Ended ended =
      site.launch("a:2,b", {"--dry_run", "-x", "HOME", "-x", "NEW=1 2", "-x", "^MINE", "true"},
                  {"API_KEY=geheim", "MINE=stays", "DTRUN_KEY=dtk1_none", "SSH_CLIENT=1"});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  for (const char* there : {"\"slots\": 2", "API_KEY=***", "NEW=1 2", "\"HOME="})
    CHECK(contains(ended.out, there));
  for (const char* not_there : {"geheim", "stays", "dtk1_none", "SSH_CLIENT"})
    CHECK(!contains(ended.out, not_there));
}

TEST_CASE("the variables of --env_file are on every host, and -x has the last word") {
  const Site site;
  write_text(site.path("variables"), "# of the site\nFROM_FILE=a  b\nexport EXPORTED=2 $x\nTWICE=file\n");
  const Ended ended = site.launch("a,b", {"--env_file", site.path("variables"), "-x", "TWICE=option", "--",
                                          "sh", "-c", "echo \"rank $RANK: $FROM_FILE|$EXPORTED|$TWICE\""});
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  for (const char* rank : {"0", "1"})
    CHECK_MESSAGE(contains(ended.out, std::string("rank ") + rank + ": a  b|2 $x|option\n"), ended.out);
}

// The launch's standard input is what `shell` makes of it: "COMMAND |", or "exec" with a redirection behind
// it.
Ended launch_with_input(const Site& site, const std::string& before, const std::string& hosts,
                        const std::string& script, const std::string& behind = "") {
  std::vector<std::string> argv = site.words(hosts, {"--log_prefix", "", "--", "sh", "-c", script});
  argv.insert(argv.begin(), {"sh", "-c", before + " \"$0\" \"$@\" " + behind});
  return run(argv, site.environment());
}

TEST_CASE("standard input is that of the workers on the first host, as on one host") {
  const Site site;
  const Ended hi = launch_with_input(site, "echo hi |", "a", "cat");
  CHECK_MESSAGE(hi.exit_code == 0, hi.err);
  CHECK(hi.out == "hi\n");
  const Ended two = launch_with_input(site, "echo hi |", "a,b", "echo \"$RANK has $(wc -c)\"");
  CHECK(contains(two.out, "0 has 3\n"));
  CHECK(contains(two.out, "1 has 0\n"));
  const Ended none = launch_with_input(site, "exec", "a", "wc -c", "<&-");
  CHECK(none.exit_code == 0);
  CHECK(none.out == "0\n");
}

TEST_CASE("much input arrives whole, from a pipe and from a file, however slowly it is read") {
  const Site site;
  std::string much;
  for (int i = 0; i < 300'000; ++i) much += std::to_string(i) + "\n";
  write_text(site.path("much"), much);
  const std::string sum = output_of({"sha256sum", site.path("much")}).substr(0, 64);
  for (const bool from_file : {false, true}) {
    CAPTURE(from_file);
    const Ended ended = launch_with_input(site, from_file ? "exec" : "cat '" + site.path("much") + "' |", "a",
                                          "sleep 0.5; head -c 100000; sleep 0.5; cat",
                                          from_file ? "< '" + site.path("much") + "'" : "");
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    write_text(site.path("came"), ended.out);
    CHECK(output_of({"sha256sum", site.path("came")}).substr(0, 64) == sum);
  }
}

TEST_CASE("input that no worker reads is left where it is, and ends nothing") {
  const Site site;
  write_text(site.path("count"), "#!/bin/sh\nyes | head -c 50000000 2>/dev/null\n: > \"$0.done\"\n");
  const Ended ended = launch_with_input(site, "sh '" + site.path("count") + "' |", "a", "sleep 2; exit 3");
  CHECK(ended.exit_code == 3);
  CHECK(eventually([&] { return fs::exists(site.path("count.done")); }));  // the pipe broke
  const Ended endless = launch_with_input(site, "exec", "a", "exit 5", "< /dev/zero");
  CHECK(endless.exit_code == 5);
}

TEST_CASE("--check tells of each host and starts nothing") {
  const Site site;
  const Ended ended = site.launch("a,b", {"--check", "--", "touch", "started"});
  CHECK(ended.exit_code == 0);
  const std::string here = " (" + own_name() + "): dtrun ";
  CHECK(contains(ended.out, "a" + here));
  CHECK(contains(ended.out, "reaches a at "));
  CHECK(ended.out.ends_with("\n2 of 2 hosts can run the job\n"));
  const std::string own = own_name();
  const Ended by_name = site.launch(own, {"--check", "--", "true"});
  CHECK_MESSAGE(by_name.out.starts_with(own + ": dtrun "), by_name.out);
  CHECK(by_name.out.find(own, 1) == std::string::npos);  // once a line is enough
  CHECK(by_name.out.ends_with("\n1 of 1 hosts can run the job\n"));
  CHECK(!fs::exists(site.path("started")));
}

TEST_CASE("--check tells of a host whose clock differs") {
  const Site site;
  for (const std::string seconds : {"0", "100", "-100"}) {
    CAPTURE(seconds);
    write_text(site.remote_shell(), "#!/bin/sh\ntest $1 = a || export SHIFTED_SECONDS=" + seconds + " " +
                                        shell_text(preloaded(DTRUN_SHIFTED_CLOCK)) +
                                        "\nshift\nexec \"$@\"\n");
    const Ended ended = site.launch("a,b", {"--check", "--", "true"});
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
    const std::size_t second = ended.out.find("\nb ");
    REQUIRE(second != std::string::npos);
    CHECK(!contains(ended.out.substr(0, second), "clock"));
    // The login's time is taken for a difference, and what is left of a second is dropped.
    CHECK((contains(ended.out, "its clock is 99 s ahead") ||
           contains(ended.out, "its clock is 100 s ahead")) == (seconds == "100"));
    CHECK((contains(ended.out, "its clock is 100 s behind") ||
           contains(ended.out, "its clock is 101 s behind")) == (seconds == "-100"));
    CHECK(contains(ended.out, "clock") == (seconds != "0"));
  }
}

TEST_CASE("dtrun status finds the job, whose key nobody else has") {
  const Site site;
  const std::string registry = "XDG_RUNTIME_DIR=" + site.folder.path().string();
  Process launcher(site.words("a,b", {"--rdzv_id", "job7", "--", "sleep", "600"}),
                   site.environment({registry}));
  CHECK(eventually([&] {
    const Ended status = run({kDtrun, "status", "job7"}, {registry});
    return status.exit_code == 0 && contains(status.out, "running") && contains(status.out, "world size 2");
  }));
  launcher.signal(SIGTERM);
  CHECK(launcher.wait() == 143);
}

TEST_CASE("whatever a host offers as a key, the job has the launcher's, or none") {
  const Site site;
  const std::vector<std::string> print{"--", "sh", "-c", "env"};
  const Ended keyed = site.launch("a,b", print, {"DTRUN_KEY_FILE=/nowhere", "DTRUN_KEY=short"});
  CHECK_MESSAGE(keyed.exit_code == 0, keyed.err);
  CHECK(!contains(keyed.out, "DTRUN_KEY="));
  CHECK(!contains(keyed.out, "dtk1_"));
  const Ended plain = site.launch("a,b", print, {"DTRUN_INSECURE=1"});
  CHECK_MESSAGE(plain.exit_code == 0, plain.err);
  CHECK(contains(plain.err, "plain text"));
}

TEST_CASE("Ctrl-C ends the workers, and so does the launcher's death; nothing is left") {
  const Site site;
  for (const int number : {SIGINT, SIGKILL}) {
    CAPTURE(number);
    const std::string mark = "17" + std::to_string(number) + std::to_string(getpid());
    Process launcher(site.words("a,b", {"--nproc_per_node", "2", "--", "sleep", mark}), site.environment());
    REQUIRE(eventually([&] { return processes_with(mark).size() >= 5; }));  // the launcher and its workers
    launcher.signal(number);
    CHECK(launcher.wait() == 128 + number);
    CHECK(eventually([&] { return processes_with(mark).empty(); }));
  }
}

TEST_CASE("a launcher ends well however its remote shells' ends fall together") {
  const Site site;
  for (int i = 0; i < 15; ++i) {
    const Ended ended = site.launch("a,b,c", {"--", "true"});
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  }
}

}  // namespace

}  // namespace dtrun::hosts_test
