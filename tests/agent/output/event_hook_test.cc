// Commands that take the events as they should, and commands that do what they should not.
#include "agent/output/event_hook.h"

#include <doctest/doctest.h>

#include <sstream>

#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::event_hook_test {

using namespace dtrun::agent;
using namespace dtrun::test;
using namespace std::chrono_literals;

TEST_CASE("each event is one command's standard input, in their order, and the last ones are waited for") {
  const Folder folder;
  EventHook hook("cat >>'" + (folder / "all").string() + "'; sleep 0.02");
  std::string told;
  for (int i = 0; i < 20; ++i) {
    const std::string line = "{\"event\":\"news\",\"i\":" + std::to_string(i) + "}\n";
    told += line;
    hook.tell(line);
  }
  hook.finish();
  CHECK(read_if_there(folder / "all") == told);
  CHECK(hook.take_fault().empty());
}

TEST_CASE("a command that hangs is killed with what it started, and the next event's begins") {
  const Folder folder;
  const std::string pids = (folder / "pids").string();
  EventHook hook("read line; if [ \"$line\" = hang ]; then sleep 1000 & echo $! $$ >'" + pids +
                     "'; wait; else echo \"$line\" >'" + (folder / "next").string() + "'; fi",
                 soon(500ms));
  hook.tell("hang\n");
  hook.tell("go on\n");
  REQUIRE(eventually([&] { return read_if_there(folder / "next") == "go on\n"; }));
  CHECK(hook.take_fault() == "--on_event: the command took too long, or said too much, and was killed");
  std::istringstream of_hung(read_if_there(pids));
  for (pid_t pid = 0; of_hung >> pid;) CHECK(eventually([&] { return !is_alive(pid); }));
}

TEST_CASE("a command that floods, and one that does not read, cost little and are told once") {
  EventHook floods("yes", 20s);
  const Stopwatch watch;
  floods.tell("x\n");
  floods.tell("y\n");
  floods.finish();
  CHECK(watch.fair() < 15s);
  CHECK(floods.take_fault().find("said too much") != std::string::npos);
  CHECK(floods.take_fault().empty());
  EventHook deaf("exit 3");
  deaf.tell(std::string(1 << 20, 'x') + "\n");
  deaf.finish();
  CHECK(deaf.take_fault() == "--on_event: the command ended with exit code 3");
}

TEST_CASE("to tell costs no time whatever the command does, and the end waits for its limit at most") {
  EventHook hook("sleep 1000", 300ms);
  const Stopwatch watch;
  for (int i = 0; i < 1000; ++i) hook.tell("x\n");
  CHECK(watch.fair() < 250ms);
  hook.finish();
  CHECK(watch.fair() < 3s);
  CHECK(hook.take_fault() == "--on_event: the command is too slow; events were dropped");
}

TEST_CASE("without an event nothing is started") {
  const Folder folder;
  { EventHook hook("touch '" + (folder / "started").string() + "'"); }
  CHECK_FALSE(std::filesystem::exists(folder / "started"));
}

}  // namespace dtrun::event_hook_test
