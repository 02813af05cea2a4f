// dtrun in the foreground of a terminal: what a user sees while lines are unfinished, and what a user types.
#include "tests/support/terminal.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"

namespace dtrun::terminal_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

// dtrun on a command line.
Words typed(Words arguments) {
  arguments.insert(arguments.begin(), kDtrun);
  return arguments;
}

}  // namespace

TEST_CASE("a worker can be talked to through the terminal, as a debugger is") {
  Terminal terminal(typed({"--", "/bin/sh", "-c", "echo ready; read line; echo got $line; sleep 60"}));
  REQUIRE_MESSAGE(terminal.shows("ready"), terminal.seen());
  terminal.type("continue\n");
  CHECK_MESSAGE(terminal.shows("got continue"), terminal.seen());
  terminal.type("\x03");
  CHECK_MESSAGE(terminal.shows("after SIGINT"), terminal.seen());
}

TEST_CASE("a progress bar is shown as it moves, and ends as one line with its last state") {
  Terminal terminal(
      typed({"--", "/bin/sh", "-c",
             "printf '\\r\\033[1mhalf\\033[0m done' >&2; read line; printf '\\rall done\\n' >&2; sleep 60"}));
  REQUIRE_MESSAGE(terminal.shows("\x1b[K[default:0] half done"), terminal.seen());
  terminal.type("\n");
  REQUIRE_MESSAGE(terminal.shows("[default:0] all done\r\n"), terminal.seen());
  CHECK_FALSE(contains(terminal.seen(), "half done\rall"));
}

TEST_CASE("a terminal without escape sequences is given none: an unfinished line is cleared with spaces") {
  setenv("TERM", "dumb", 1);
  Terminal terminal(typed({"--", "/bin/sh", "-c", "printf 'name? '; read line; echo hello $line; sleep 60"}));
  setenv("TERM", "xterm", 1);
  REQUIRE_MESSAGE(terminal.shows("[default:0] name? "), terminal.seen());
  terminal.type("ada\n");
  REQUIRE_MESSAGE(terminal.shows("\r" + std::string(18, ' ') + "\r[default:0] name? hello ada\r\n"),
                  terminal.seen());
  CHECK_FALSE(contains(terminal.seen(), "\x1b"));
}

TEST_CASE("an unfinished line never wraps, so that it can be cleared") {
  Terminal terminal(
      typed({"--log_prefix", "", "--", "/bin/sh", "-c",
             "printf 'a\tb'; i=0; while [ $i -lt 60 ]; do printf '\\346\\274\\242'; i=$((i+1)); done; "
             "read line; printf '\\nend\\n'; sleep 60"}));
  std::string shown = "\x1b[Ka b";  // three columns, then two for each character, in 79
  for (int i = 0; i < 38; ++i) shown += "\xe6\xbc\xa2";
  REQUIRE_MESSAGE(terminal.shows(shown), terminal.seen());
  terminal.type("\n");
  REQUIRE_MESSAGE(terminal.shows("\nend"), terminal.seen());
  CHECK_FALSE(contains(terminal.seen().substr(0, terminal.seen().find('\n')), shown + "\xe6"));
}

TEST_CASE("whole lines go above the unfinished line of another worker") {
  Folder folder;
  const std::string file = folder.path() / "asked";
  Terminal terminal(typed({"--nproc_per_node", "2", "--", "/bin/sh", "-c",
                           "if [ $RANK = 0 ]; then printf 'your name? '; read name; else until [ -e " + file +
                               " ]; do sleep 0.05; done; fi; echo hello $RANK; sleep 60"}));
  REQUIRE_MESSAGE(terminal.shows("[default:0] your name? "), terminal.seen());
  std::ofstream(file).close();
  REQUIRE_MESSAGE(terminal.shows("[default:1] hello 1\r\n[default:0] your name? "), terminal.seen());
  terminal.type("ada\n");
  CHECK_MESSAGE(terminal.shows("[default:0] your name? hello 0\r\n"), terminal.seen());
}

namespace {

// All that `arguments` say on a terminal with one more variable.
std::string said(const Words& arguments, const std::string& last, const char* name = "DTRUN_NOTHING",
                 const char* value = "1") {
  const char* before = getenv(name);
  const std::string kept = before != nullptr ? before : "";
  setenv(name, value, 1);
  Terminal terminal(typed(arguments));
  before != nullptr ? setenv(name, kept.c_str(), 1) : unsetenv(name);
  CHECK_MESSAGE(terminal.shows(last), terminal.seen());
  return terminal.seen();
}

}  // namespace

TEST_CASE("a terminal has errors in red and hints in cyan, unless it or its user wants no colour") {
  const Words wrong{"--nodes_", "2"};
  const std::string end = "lists all)",
                    plain = "dtrun: unknown option --nodes_, did you mean --nnodes? (dtrun";
  CHECK(contains(said(wrong, end, "TERM", "xterm"),
                 "dtrun: \x1b[1;31munknown option --nodes_, \x1b[0m\x1b[36mdid you mean --nnodes?\x1b[0m"));
  CHECK(contains(said(wrong, end, "TERM", "dumb"), plain));
  CHECK(contains(said(wrong, end, "NO_COLOR", "1"), plain));
  CHECK(contains(said({"--color", "never", "--nodes_", "2"}, end), plain));
}

TEST_CASE("on a terminal the report's heading is red as --color says, and a blank line is around it anyway") {
  const Words failing{"--", "/bin/sh", "-c", "exit 3"};
  const std::string end = "pid ";
  CHECK(contains(said(failing, end, "TERM", "xterm"), "\r\ndtrun: \x1b[1;31mthe job failed: rank 0 on "));
  CHECK(contains(said(failing, end, "NO_COLOR", "1"), "\r\ndtrun: the job failed: rank 0 on "));
  Words never = failing;
  never.insert(never.begin(), {"--color", "never"});
  CHECK(contains(said(never, end), "\r\ndtrun: the job failed: rank 0 on "));
}

TEST_CASE("the wait for other nodes is one line that counts down in place") {
  Terminal terminal(typed(
      {"--nnodes", "2", "--rdzv_endpoint", "127.0.0.1:" + std::to_string(free_port()), "--", "/bin/true"}));
  REQUIRE_MESSAGE(terminal.shows("\r\x1b[Kwaiting: joined 1 of 2 nodes; 593 s left"), terminal.seen());
  const std::string said = "dtrun: joined 1 of 2 nodes";
  REQUIRE(contains(terminal.seen(), said));
  const std::string after = terminal.seen().substr(terminal.seen().find(said));
  CHECK_MESSAGE(after.find('\n') == after.rfind('\n'), terminal.seen());
}

}  // namespace dtrun::terminal_test
