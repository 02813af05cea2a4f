// Signals to dtrun, its sudden death, and what must not outlive it: real processes.
#include <csignal>
#include <cstdint>

#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::stop_test {

using dtrun::test::Ended;

namespace {

constexpr char kWaitForTerm[] =
    "trap 'echo got TERM; exit 3' TERM; trap 'echo got INT; exit 4' INT; echo ready; "
    "while :; do sleep 0.02; done";

// A number of seconds that nobody else sleeps, for each `kind` its own.
std::string seconds_of_ours(int kind) { return std::to_string(kind) + std::to_string(getpid()) + ".25"; }

// A shell's command for a process without parent, group or environment that sleeps so long.
std::string daemon(const std::string& seconds) { return "(env -i setsid sleep " + seconds + " &)"; }

std::size_t sleepers(const std::string& seconds) {
  return dtrun::test::processes_with(std::string("sleep") + '\0' + seconds).size();
}

// Processes of the job started under this name.
bool none_left(const std::string& run_id) {
  return eventually([&] { return dtrun::test::processes_with(run_id).empty(); });
}

// The watchdog of the agent started under this name; -1 if there is none.
pid_t watchdog_of(const std::string& run_id) {
  for (pid_t pid : dtrun::test::processes_with(run_id)) {
    if (read_if_there("/proc/" + std::to_string(pid) + "/comm") == "watchdog\n") return pid;
  }
  return -1;
}

// A process that a worker starts and does not wait for: it lives until SIGTERM tells it to do something and
// end; "": it ignores that.
struct InBackground {
  std::string on_term;
  bool daemon = false;  // without parent, group and environment

  // A shell's command that has started it once it is done.
  std::string started() const {
    const Folder folder;  // gone at once: a name that nobody else has
    const std::string begun = folder.path().string() + ".begun",
                      trap = on_term.empty() ? "" : on_term + "; exit";
    const std::string life = "trap '" + trap + "' TERM; touch " + begun + "; while :; do sleep 0.02; done";
    const std::string start = "/bin/sh -c \"" + life + "\" &";
    return (daemon ? "(env -i setsid " + start + "); " : start + " ") + "until [ -e " + begun +
           " ]; do sleep 0.02; done; rm " + begun + "; ";
  }
};

Ended end_of(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"--", "/bin/sh", "-c", script});
  return dtrun::test::run(agent(options));
}

// Signals that a process was sent and has not taken, as bits.
std::uint64_t pending_signals(pid_t pid) {
  const std::string status = read_if_there("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("ShdPnd:");
  return at == std::string::npos ? 0 : std::stoull(status.substr(at + 7), nullptr, 16);
}

}  // namespace

TEST_CASE("SIGTERM and SIGINT reach the workers, which end in peace, and dtrun ends with 128+N") {
  for (const auto& sent : {std::pair{SIGTERM, "got TERM"}, {SIGINT, "got INT"}}) {
    const int number = sent.first;
    const std::string heard = sent.second;
    CAPTURE(number);
    Process job(agent({"--nproc", "2", "--", "/bin/sh", "-c", kWaitForTerm}));
    REQUIRE(job.wait_for_out("[default:0] ready"));
    REQUIRE(job.wait_for_out("[default:1] ready"));
    job.signal(number);
    CHECK(job.wait() == 128 + number);
    CHECK(job.out().find("[default:0] " + heard) != std::string::npos);
    CHECK(job.out().find("[default:1] " + heard) != std::string::npos);
  }
}

TEST_CASE("a worker that ignores signals is killed after the grace, its children with it") {
  Process job(agent_with({"--shutdown_ms", "300"}, {"stubborn"}));
  REQUIRE(job.wait_for_out("ready"));
  const Family family = family_in(job.out());
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
  CHECK(job.err().find("killing 1 worker") != std::string::npos);
  CHECK_FALSE(is_alive(family.child));
}

TEST_CASE("a second SIGINT ends at once what would have had half a minute") {
  Process job(agent_with({}, {"stubborn"}));
  REQUIRE(job.wait_for_out("ready"));
  job.signal(SIGINT);
  REQUIRE(job.wait_for_err("stopping 1 worker after SIGINT"));
  CHECK(eventually(
      [&] {
        job.signal(SIGINT);
        return !is_alive(job.pid());
      },
      std::chrono::seconds(15)));
  CHECK(job.wait() == 130);
}

TEST_CASE("a stopped worker is woken to hear that it should end") {
  Process job(agent({"--", "/bin/sh", "-c", kWaitForTerm}));
  REQUIRE(job.wait_for_out("ready"));
  for (pid_t pid : dtrun::test::processes_with("got TERM")) {
    if (pid != job.pid()) kill(pid, SIGSTOP);
  }
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
  CHECK(job.out().find("got TERM") != std::string::npos);
}

TEST_CASE("a worker's children and daemons do not outlive it") {
  Process job(agent_with({"--shutdown_ms", "300"}, {"family", "exit"}));
  REQUIRE(job.wait_for_out("ready"));
  const Family family = family_in(job.out());
  CHECK(job.wait() == 0);
  CHECK_FALSE(is_alive(family.child));
  CHECK_FALSE(is_alive(family.daemon));
}

TEST_CASE("what a successful worker left behind gets SIGTERM, is told of, and its last words are passed on") {
  const Ended job = end_of({}, InBackground{.on_term = "echo got TERM"}.started() + "echo trained");
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK_MESSAGE(contains(job.out, "[default:0] trained"), job.out);
  CHECK_MESSAGE(contains(job.out, "[default:0] got TERM"), job.out);
  CHECK_MESSAGE(contains(job.err, " that rank 0 left behind (/bin/sh -c "), job.err);
  CHECK_MESSAGE(contains(job.err, "), in at most 30 s; rank 0 should wait for what has to finish\n"),
                job.err);
  CHECK_FALSE_MESSAGE(contains(job.err, "killing"), job.err);
}

TEST_CASE(
    "what was left behind may finish its file, in the background and as a daemon without an environment") {
  for (const bool daemon : {false, true}) {
    CAPTURE(daemon);
    const Folder folder;
    const std::string file = folder / "copy";
    const InBackground copies{.on_term = "sleep 1; echo whole > " + file + "; echo copied", .daemon = daemon};
    const Ended job = end_of({}, copies.started());
    CHECK_MESSAGE(job.exit_code == 0, job.err);
    CHECK(read_if_there(file) == "whole\n");
    CHECK_MESSAGE(contains(job.out, "[default:0] copied"), job.out);
    CHECK_MESSAGE(contains(job.err, "ending "), job.err);
    CHECK_FALSE_MESSAGE(contains(job.err, "killing"), job.err);
  }
}

TEST_CASE("what was left behind and does not end is killed after the grace, a daemon too") {
  for (const bool daemon : {false, true}) {
    CAPTURE(daemon);
    const Stopwatch watch;
    const Ended job =
        end_of({"--shutdown_ms", "1200"}, InBackground{.on_term = "", .daemon = daemon}.started());
    CHECK(watch.wall() >= std::chrono::milliseconds(1200));
    CHECK_MESSAGE(job.exit_code == 0, job.err);
    CHECK_MESSAGE(contains(job.err, "dtrun: killing "), job.err);
    CHECK_MESSAGE(contains(job.err, "): not ended after 1.2 s\n"), job.err);
  }
}

TEST_CASE("what ends by itself within a moment of its worker gets no signal, and no word is said") {
  soon(std::chrono::milliseconds(500));  // the product's moment
  const Ended job = end_of({}, "(trap 'echo got TERM' TERM; sleep 0.1; echo ended) & exit 0");
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK(job.out == "[default:0] ended\n");
  CHECK(job.err == "");
}

TEST_CASE("what a worker that failed left behind is killed at once, and told of") {
  const Stopwatch watch;
  const Ended job = end_of({}, InBackground{.on_term = "echo got TERM"}.started() + "exit 3");
  CHECK(watch.fair() < std::chrono::seconds(20));
  CHECK(job.exit_code == 3);
  CHECK_MESSAGE(contains(job.err, "dtrun: killing "), job.err);
  CHECK_MESSAGE(contains(job.err, " that rank 0 left behind (/bin/sh -c "), job.err);
  CHECK_FALSE(contains(job.out, "got TERM"));
}

TEST_CASE(
    "a second Ctrl-C cuts the time short of what was left behind, and after a success the first one does") {
  for (const bool success : {true, false}) {
    CAPTURE(success);
    const std::string worker =
        success ? "exit 0" : "trap 'exit 0' INT; echo ready; while :; do sleep 0.02; done";
    const std::string script = InBackground{.on_term = ""}.started() + worker;
    Process job(agent({"--", "/bin/sh", "-c", script}));
    if (!success) {
      REQUIRE(job.wait_for_out("ready"));
      job.signal(SIGINT);
    }
    REQUIRE_MESSAGE(job.wait_for_err(" left behind ("), job.err());
    CHECK(eventually(
        [&] {
          job.signal(SIGINT);
          return !is_alive(job.pid());
        },
        std::chrono::seconds(15)));
    CHECK(job.wait() == (success ? 0 : 130));
    CHECK_MESSAGE(contains(job.err(), "): told to end at once\n"), job.err());
  }
}

TEST_CASE("what was left behind does not live on into the next generation") {
  // Rank 1 fails once rank 0 has ended.
  const Folder folder;
  const std::string file = folder / "pid", worker = folder / "worker";
  const std::string script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { cat " + file + "; exit 0; }; " +
                             "[ $RANK = 1 ] && { until [ -s " + file + " ] && [ ! -e /proc/$(cat " + worker +
                             ") ]; do sleep 0.02; done; exit 1; }; " + "echo $$ > " + worker + "; " +
                             InBackground{.on_term = ""}.started() + "echo $! > " + file;
  const Ended job = end_of({"--nproc", "2", "--max_restarts", "1"}, script);
  CHECK_MESSAGE(job.exit_code == 0, job.err);
  CHECK_MESSAGE(contains(job.err, " that rank 0 left behind ("), job.err);
  CHECK_MESSAGE(contains(job.err, "): the workers are started again\n"), job.err);
  CHECK_FALSE(is_alive(std::stoi(read_if_there(file))));
}

TEST_CASE("kill -9 of the agent leaves no worker, no grandchild, no daemon and no watchdog") {
  const std::string run_id = "run-" + dtrun::random_id();
  const Folder temporary;
  Process job(agent_with({"--nproc", "2", "--run_id", run_id}, {"family", run_id}),
              {"TMPDIR=" + temporary.path().string()});
  REQUIRE(job.wait_for_out("[default:0] child"));
  REQUIRE(job.wait_for_out("[default:1] child"));
  CHECK(dtrun::test::processes_with(run_id).size() >= 2 + 2 * 3);  // agent, watchdog, two families
  CHECK_FALSE(std::filesystem::is_empty(temporary.path()));
  job.signal(SIGKILL);
  CHECK(job.wait() == 128 + SIGKILL);
  CHECK(none_left(run_id));
  CHECK(std::filesystem::is_empty(temporary.path()));
}

TEST_CASE("an orderly end leaves no watchdog") {
  const std::string run_id = "run-" + dtrun::random_id();
  Process job(agent({"--run_id", run_id, "--", "/bin/true"}));
  CHECK(job.wait() == 0);
  CHECK(dtrun::test::processes_with(run_id).empty());
}

TEST_CASE("a watchdog that dies is replaced") {
  const std::string run_id = "run-" + dtrun::random_id();
  Process job(agent_with({"--run_id", run_id}, {"family"}));
  REQUIRE(job.wait_for_out("ready"));
  REQUIRE(eventually([&] { return watchdog_of(run_id) > 0; }));
  const pid_t first = watchdog_of(run_id);
  kill(first, SIGKILL);
  REQUIRE(eventually([&] {
    const pid_t now = watchdog_of(run_id);  // looked up once: between two looks the old one may vanish
    return now > 0 && now != first;
  }));
  const Family family = family_in(job.out());
  job.signal(SIGKILL);
  CHECK(eventually([&] { return !is_alive(family.daemon); }));
  CHECK(none_left(run_id));
}

// A scheduler sends SIGTERM to every process that it finds. The agent's own mask, which the watchdog has from
// it, leaves out the last two.
TEST_CASE("a watchdog that gets signals stays, and still keeps its promise") {
  const std::string run_id = "run-" + dtrun::random_id();
  Process job(agent_with({"--run_id", run_id}, {"family"}));
  REQUIRE(job.wait_for_out("ready"));
  REQUIRE(eventually([&] { return watchdog_of(run_id) > 0; }));
  const pid_t watchdog = watchdog_of(run_id);
  std::uint64_t sent = 0;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGABRT, SIGPROF}) {
    REQUIRE(kill(watchdog, number) == 0);
    sent |= std::uint64_t{1} << (number - 1);
  }
  CHECK((pending_signals(watchdog) & sent) == sent);  // they have come
  CHECK(is_alive(watchdog));
  const Family family = family_in(job.out());
  job.signal(SIGKILL);
  CHECK(eventually([&] { return !is_alive(family.daemon); }));
  CHECK(none_left(run_id));
}

TEST_CASE("a process without the tag is never touched") {
  Process bystander({"sleep", "1000"}, {"DTRUN_PROCESS_TAG=another.0;"});
  Process job(agent_with({}, {"family"}));
  REQUIRE(job.wait_for_out("ready"));
  const Family family = family_in(job.out());
  job.signal(SIGKILL);
  CHECK(eventually([&] { return !is_alive(family.daemon); }));
  CHECK(is_alive(bystander.pid()));
  bystander.signal(SIGKILL);
}

TEST_CASE("signals are heard while the coordinator's name is being looked up") {
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    CAPTURE(number);
    Process job(agent({"--host", "node0.example", "--port", free_port(), "--nodes", "2", "--", "/bin/true"}),
                dtrun::test::preloaded(binary("slow_names.so")));
    REQUIRE(job.wait_for_err("looking up node0.example"));
    job.signal(number);
    CHECK(job.wait() == 128 + number);
  }
}

TEST_CASE("signals are heard while other nodes are waited for") {
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    CAPTURE(number);
    Process job(agent({"--nodes", "2", "--port", free_port(), "--", "/bin/true"}));
    REQUIRE(job.wait_for_err("joined 1 of 2 nodes"));
    job.signal(number);
    CHECK(job.wait() == 128 + number);
  }
}

TEST_CASE("SIGHUP and SIGQUIT reach the workers like SIGTERM") {
  for (const auto& [number, name] : {std::pair{SIGHUP, "HUP"}, {SIGQUIT, "QUIT"}}) {
    const std::string trap = std::string("trap 'echo got ") + name + "; exit 3' " + name;
    Process job(agent({"--", "/bin/sh", "-c", trap + "; echo ready; while :; do sleep 0.02; done"}));
    REQUIRE(job.wait_for_out("ready"));
    job.signal(number);
    CHECK(job.wait() == 128 + number);
    CHECK(job.out().find(std::string("got ") + name) != std::string::npos);
  }
}

TEST_CASE("a signal that is to be handled stops the job like the usual ones") {
  const std::string script = "trap 'echo got USR1; exit 3' USR1; echo ready; while :; do sleep 0.02; done";
  Process job(agent({"--signal", std::to_string(SIGUSR1), "--", "/bin/sh", "-c", script}));
  REQUIRE(job.wait_for_out("ready"));
  job.signal(SIGUSR1);
  CHECK(job.wait() == 128 + SIGUSR1);
  CHECK(job.out().find("got USR1") != std::string::npos);
}

TEST_CASE("other signals are passed on and stop nothing") {
  const std::string script = "trap 'echo got USR2' USR2; echo ready; while :; do sleep 0.02; done";
  Process job(agent({"--", "/bin/sh", "-c", script}));
  REQUIRE(job.wait_for_out("ready"));
  job.signal(SIGUSR2);
  REQUIRE(job.wait_for_out("got USR2"));
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
}

TEST_CASE("a daemon that gave up its parent, its group and its environment is found in the end") {
  const std::string mark = seconds_of_ours(31);
  Process job(agent({"--", "/bin/sh", "-c", "env -i setsid sleep " + mark + " & exit 0"}));
  CHECK(job.wait() == 0);
  CHECK(dtrun::test::processes_with(mark).empty());
}

TEST_CASE("a daemon that gave up its environment ends with its worker, while others go on") {
  const std::string mark = seconds_of_ours(33), others = seconds_of_ours(34);
  const Folder folder;
  const std::string go = (folder.path() / "go").string();
  Process job(agent({"--nproc", "2", "--", "/bin/sh", "-c",
                     "[ $RANK = 0 ] || exec sleep " + others + "; " + daemon(mark) + "; until [ -e " + go +
                         " ]; do sleep 0.01; done"}));
  REQUIRE(eventually([&] { return sleepers(mark) == 1 && sleepers(others) == 1; }));
  std::ofstream(go).close();
  CHECK(eventually([&] { return sleepers(mark) == 0; }));
  CHECK(sleepers(others) == 1);
  job.signal(SIGTERM);
  CHECK(job.wait() == 128 + SIGTERM);
}

TEST_CASE("kill -9 of the agent leaves no daemon without environment, not even one that has just appeared") {
  const std::string mark = seconds_of_ours(35);
  for (int round = 0; round < 5; ++round) {
    Process job(agent({"--", "/bin/sh", "-c", "while :; do " + daemon(mark) + "; sleep 0.003; done"}));
    REQUIRE(eventually([&] { return sleepers(mark) > 3; }));
    job.signal(SIGKILL);
    CHECK(job.wait() == 128 + SIGKILL);
    CHECK(eventually([&] { return sleepers(mark) == 0; }));
    CHECK(none_left(mark));
  }
}

TEST_CASE("another job's daemon without environment is never touched") {
  const std::string mine = seconds_of_ours(36), other = seconds_of_ours(37);
  Process first(agent({"--", "/bin/sh", "-c", daemon(mine) + "; sleep 1000"}));
  Process second(agent({"--", "/bin/sh", "-c", daemon(other) + "; sleep 1000"}));
  REQUIRE(eventually([&] { return sleepers(mine) == 1 && sleepers(other) == 1; }));
  first.signal(SIGKILL);
  CHECK(none_left(mine));
  CHECK(sleepers(other) == 1);
  second.signal(SIGKILL);
  CHECK(none_left(other));
}

TEST_CASE("a daemon without environment that a job within a job left is found by both agents") {
  const std::string inner = seconds_of_ours(38), outer = seconds_of_ours(39);
  std::string within = daemon(outer) + "; ";
  within += dtrun::test::shell_text(
      agent({"--", "/bin/sh", "-c", daemon(inner) + "; echo agent $PPID; sleep 1000"}));
  within += "; sleep 1000";
  Process job(agent({"--", "/bin/sh", "-c", within}));
  REQUIRE(job.wait_for_out("agent "));
  REQUIRE(eventually([&] { return sleepers(inner) == 1 && sleepers(outer) == 1; }));
  SUBCASE("the inner agent is killed") {
    kill(std::atoi(job.out().c_str() + job.out().find("agent ") + 6), SIGKILL);
    CHECK(eventually([&] { return sleepers(inner) == 0; }));
    CHECK(sleepers(outer) == 1);
  }
  job.signal(SIGKILL);
  CHECK(eventually([&] { return sleepers(inner) == 0 && sleepers(outer) == 0; }));
  CHECK(none_left(outer));
}

TEST_CASE("where limits cannot be tagged the job runs, and a daemon is found in the end") {
  const std::string mark = seconds_of_ours(40);
  std::vector<std::string> command =
      agent({"--", "/bin/sh", "-c", daemon(mark) + "; grep locks /proc/self/limits"});
  command.insert(command.begin(), {"prlimit", "--locks=100:100"});
  Process job(command);
  CHECK(job.wait() == 0);
  CHECK(job.out().find(" 100 ") != std::string::npos);
  CHECK(none_left(mark));
}

TEST_CASE("children of the shell that became dtrun are not the job's") {
  const std::string mark = seconds_of_ours(32);
  const std::string command =
      "sleep " + mark + " & exec " + dtrun::test::shell_text(agent({"--", "/bin/true"}));
  Process job({"/bin/sh", "-c", command});
  CHECK(eventually([&] { return !is_alive(job.pid()); }));
  const auto left = dtrun::test::processes_with(mark);
  CHECK(left.size() == 1);
  for (pid_t pid : left) kill(pid, SIGKILL);
  CHECK(job.wait() == 0);
}

}  // namespace dtrun::agent::test::stop_test
