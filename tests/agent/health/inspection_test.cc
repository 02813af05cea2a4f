// The places where real processes stand, and the tools that are run to find them: tools of the test's own in
// place of py-spy and gdb.
#include "agent/health/inspection.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "agent/health/kernel_wait.h"
#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::inspection_test {

namespace {

using std::chrono::milliseconds;

constexpr char kPySpy[] =
    "echo 'Thread 1 (idle): \"MainThread\"'; echo '    load (/x/a.py:3)'; echo '    <module> (/x/a.py:9)'\n";
constexpr char kHangs[] = "exec sleep 1000\n";
constexpr char kFails[] = "echo 'Permission denied'; exit 1\n";

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A folder of tools, each of which notes that it was called.
class Tools {
 public:
  void add(const std::string& name, const std::string& script) {
    const auto file = folder_ / name;
    std::ofstream(file) << "#!/bin/sh\necho " << name << " >> " << (folder_ / "called").string() << "\n"
                        << script;
    chmod(file.c_str(), 0755);
  }
  std::vector<std::string> environment() const {
    return {"PATH=" + folder_.path().string() + ":/usr/bin:/bin"};
  }
  // Nothing else is found there.
  std::vector<std::string> only() const { return {"PATH=" + folder_.path().string()}; }
  std::string called() const { return read_if_there(folder_ / "called"); }

 private:
  Folder folder_;
};

std::unique_ptr<Process> sleeper() {
  auto process = std::make_unique<Process>(
      std::vector<std::string>{"/usr/bin/python3", "-c", "import time; time.sleep(1000)"});
  REQUIRE(eventually([&] { return kernel_wait(process->pid()).call == "clock_nanosleep"; }));
  return process;
}

struct Looked {
  std::vector<StackLocation> stack_locations;
  std::string advice, stacks;
  std::chrono::nanoseconds took, took_fair;
};

Looked look(int workers, const std::vector<std::string>& environment,
            milliseconds limit = milliseconds(20000)) {
  Loop loop;
  Folder folder;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<Inspection::InspectedWorker> asked;
  for (int i = 0; i < workers; ++i) {
    processes.push_back(sleeper());
    asked.push_back({i, getpgid(processes.back()->pid()), folder / std::to_string(i)});
  }
  const Stopwatch watch;
  bool done = false;
  Inspection all(loop, asked, limit, Inspection::Tools::kAll, environment, [&] { done = true; });
  CHECK(all.stack_location(0).where == "sleep (clock_nanosleep)");  // known before any tool has run
  while (!done) REQUIRE(loop.run_once().ok());
  Looked looked{.stack_locations = {},
                .advice = all.advice(),
                .stacks = read_if_there(folder / "0"),
                .took = watch.wall(),
                .took_fair = watch.fair()};
  for (int i = 0; i < workers; ++i) looked.stack_locations.push_back(all.stack_location(i));
  return looked;
}

}  // namespace

TEST_CASE("where py-spy answers gdb is not asked") {
  Tools tools;
  tools.add("py-spy", kPySpy);
  tools.add("gdb", kHangs);
  const Looked looked = look(2, tools.environment());
  for (const StackLocation& stack_location : looked.stack_locations)
    CHECK(stack_location.where == "sleep at a.py:3");
  CHECK(tools.called() == "py-spy\npy-spy\n");
  CHECK(looked.advice == "");
  CHECK(looked.stacks.find("clock_nanosleep") < looked.stacks.find("py-spy of process"));
}

TEST_CASE("gdb is asked where py-spy is missing, or has nothing to say") {
  const std::string gdb =
      "echo 'Thread 1 (LWP '$(echo \"$@\" | sed 's/.*-p \\([0-9]*\\).*/\\1/')'):'; echo '#0  0x01 in mine "
      "()'\n";
  Tools without, failing;
  without.add("gdb", gdb);
  failing.add("gdb", gdb);
  failing.add("py-spy", kFails);
  const Looked missing = look(1, without.environment()), refused = look(1, failing.environment());
  CHECK(missing.stack_locations[0].where == "sleep in mine");
  CHECK(holds(missing.advice, "pip install py-spy"));
  CHECK(refused.stack_locations[0].where == "sleep in mine");
  CHECK(holds(refused.advice, "ptrace_scope"));
  CHECK(failing.called() == "py-spy\ngdb\n");
}

TEST_CASE("tools that hang end at the limit that all workers share, and the kernel's word is left") {
  Tools tools;
  tools.add("py-spy", kHangs);
  const Looked looked = look(5, tools.environment(), soon(milliseconds(1200)));
  CHECK(looked.took >= milliseconds(1200));
  CHECK(looked.took_fair < milliseconds(6000));
  for (const StackLocation& stack_location : looked.stack_locations) {
    CHECK(stack_location.where == "sleep (clock_nanosleep)");
    CHECK(stack_location.activity == Activity::kElsewhere);
  }
  CHECK(holds(looked.stacks, "(took too long)"));
  CHECK(tools.called() == "py-spy\npy-spy\n");  // two at a time
}

TEST_CASE("without any tool a look takes a moment") {
  const Tools none;
  const Looked looked = look(3, none.only());
  CHECK(looked.stack_locations[2].where == "sleep (clock_nanosleep)");
  CHECK(holds(looked.advice, "pip install py-spy"));
  CHECK(looked.took_fair < milliseconds(5000));
}

TEST_CASE("a worker that computes is seen to") {
  Process busy({"/bin/sh", "-c", "echo ready; while :; do :; done"});
  REQUIRE(busy.wait_for_out("ready"));
  Loop loop;
  Folder folder;
  bool done = false;
  const Tools none;
  Inspection look(loop, {{0, getpgid(busy.pid()), folder / "0"}}, milliseconds(20000),
                  Inspection::Tools::kAll, none.only(), [&] { done = true; });
  while (!done) REQUIRE(loop.run_once().ok());
  CHECK(look.stack_location(0).activity == Activity::kComputes);
  CHECK(look.stack_location(7).activity == Activity::kUnseen);
}

}  // namespace dtrun::agent::test::inspection_test
