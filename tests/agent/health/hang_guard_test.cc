// Workers that hang, in real processes: found, their stacks written, ended, and reported.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "proto/base/descriptor.h"
#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::hang_guard_test {

using dtrun::Descriptor;
using dtrun::test::write_text;

namespace {

// Whoever reads from it waits until write_line().
struct Fifo {
  explicit Fifo(std::string path) : name(std::move(path)) {
    REQUIRE(mkfifo(name.c_str(), 0600) == 0);
    writer = Descriptor(open(name.c_str(), O_RDWR | O_CLOEXEC));
  }
  void write_line() const { REQUIRE(write(writer.get(), "line\n", 5) == 5); }
  const std::string name;
  Descriptor writer;
};

}  // namespace

TEST_CASE(
    "a program that stops touching its heartbeat file is killed, with its stacks in its log directory") {
  Folder logs;
  const std::string script =
      "for i in 1 2 3 4 5; do touch $DTRUN_HEARTBEAT_FILE; sleep 0.1; done; "
      "[ $RANK = 1 ] && exec sleep 1000; while :; do touch $DTRUN_HEARTBEAT_FILE; sleep 0.1; done";
  Process job(agent({"--nproc", "2", "--heartbeat_ms", soon_ms(5000), "--log_dir", logs.path().string(), "--",
                     "/bin/sh", "-c", script}));
  CHECK(job.wait() == 137);
  CAPTURE(job.err());
  CHECK(contains(job.err(), "rank 1: no progress for 5 s"));
  CHECK(contains(job.err(), "rank 1 on "));
  CHECK(contains(job.err(), "failed first: signal 9 (SIGKILL): it hung\n"));
  CHECK(contains(job.err(), "sleep"));
  CHECK(contains(job.err(), "\n  rank 1 stopped giving heartbeats\n"));
  const auto file = logs.path() / "test/attempt_1/1/stacks.txt";
  CHECK(contains(job.err(), "(stacks: " + file.string() + ")"));
  const std::string stacks = read_if_there(file);
  CHECK(contains(stacks, "(sleep)"));
  CHECK(contains(stacks, "thread "));
  CHECK(std::filesystem::exists(logs.path() / "test/attempt_1/0/stacks.txt"));
  const auto report = nlohmann::json::parse(read_if_there(logs.path() / "test/report.json"));
  CHECK(report["first_failure"]["cause"] == "hung");
  CHECK(report["first_failure"]["rank"] == 1);
  CHECK(report["hang"]["suspects"] == nlohmann::json::array({1}));
  const std::string events = read_if_there(logs.path() / "test/events.jsonl");
  CHECK(contains(events, "\"event\":\"hang\",\"rank\":1"));
  CHECK(contains(events, "\"where\":\"sleep"));
}

TEST_CASE("a program that never touches its heartbeat file may take its time") {
  Process job(
      agent({"--heartbeat_ms", "300", "--", "/bin/sh", "-c", "sleep 2; [ -f $DTRUN_HEARTBEAT_FILE ]"}));
  CHECK(job.wait() == 0);
}

TEST_CASE("each worker of a program has a heartbeat file of its own, and never somebody else's") {
  const Folder folder;
  const std::string script =
      "[ -f $DTRUN_HEARTBEAT_FILE ] && echo $DTRUN_HEARTBEAT_FILE > " + folder.path().string() + "/$RANK";
  Process job(agent({"--nproc", "2", "--", "/bin/sh", "-c", script}), {"DTRUN_HEARTBEAT_FILE=/somewhere"});
  CHECK(job.wait() == 0);
  CHECK(job.err() == "");
  CHECK(read_if_there(folder.path() / "0") != read_if_there(folder.path() / "1"));
  CHECK(read_if_there(folder.path() / "0") != "/somewhere\n");
}

TEST_CASE(
    "workers that get nothing done are told of once, with the read that never returns, and are not ended") {
  const Folder folder;
  const Fifo fifo(folder / "shard7");
  // Rank 0 waits for a signal of rank 1's, like a peer in a collective.
  const std::string script =
      "if [ $RANK = 1 ]; then read line < " + fifo.name + "; touch " + fifo.name +
      ".read; else exec python3 -c '" +
      "import os, socket\na, b = socket.socketpair(); a.settimeout(0.5)\nwhile not os.path.exists(\"" +
      fifo.name + ".read\"):\n  try: a.recv(1)\n  except TimeoutError: pass'; fi";
  Folder logs;
  Process job(agent({"--nproc", "2", "--notice_ms", soon_ms(1500), "--log_dir", logs.path().string(), "--",
                     "/bin/sh", "-c", script}),
              {"PATH=/usr/bin:/bin"});
  CHECK(job.wait_for_err("no worker has written, computed or read anything for "));
  CAPTURE(job.err());
  CHECK(contains(job.err(), "rank 1: read of " + fifo.name));
  CHECK(contains(job.err(), "likely cause: rank 1, which does not wait for another rank"));
  CHECK(contains(read_if_there(logs.path() / "test/attempt_1/1/stacks.txt"), "read"));
  fifo.write_line();
  CHECK(job.wait() == 0);
  const std::string events = read_if_there(logs.path() / "test/events.jsonl");
  CHECK(contains(events, "\"event\":\"news\",\"kind\":\"no_progress\""));
  CHECK_FALSE(contains(events, "\"event\":\"hang\""));
}

TEST_CASE("a program that goes on is told to do so, and one that may be silent is not told of at all") {
  const Folder folder;
  const Fifo to_calm(folder / "calm"), to_job(folder / "job");
  const std::string over = folder / "over";
  Process calm(agent({"--notice_ms", "0", "--", "/bin/sh", "-c", "read line < " + to_calm.name}));
  Process job(
      agent({"--notice_ms", "1500", "--", "/bin/sh", "-c",
             "read line < " + to_job.name + "; until [ -e " + over + " ]; do echo on; sleep 0.1; done"}));
  CHECK(job.wait_for_err("no worker has written, computed or read anything for "));
  to_job.write_line();
  CHECK(job.wait_for_err("the workers get on again, "));
  write_text(over, "");
  CHECK(job.wait() == 0);
  to_calm.write_line();
  CHECK(calm.wait() == 0);
  CHECK(calm.err() == "");
}

TEST_CASE("workers that neither write nor compute are a stall, and none is blamed where none stands out") {
  const Folder logs;
  Process job(agent({"--nproc", "2", "--stall_ms", soon_ms(1500), "--log_dir", logs.path().string(), "--",
                     "/bin/sh", "-c", "exec sleep 1000"}));
  CHECK(job.wait() == 137);
  CAPTURE(job.err());
  CHECK(contains(job.err(), "no progress for 1.5 s: no worker of this node wrote or computed anything"));
  CHECK(contains(job.err(), "the job failed: ranks 0-1 hang: no progress for 1.5 s (stacks: " +
                                (logs.path() / "test/attempt_1/RANK/stacks.txt").string() + ")\n"));
  CHECK(contains(job.err(), "\n  ranks 0-1: sleep"));
  CHECK(contains(job.err(), "all stand at the same place: no rank stands out"));
  CHECK_FALSE(contains(job.err(), "failed first"));
  CHECK_FALSE(contains(job.err(), "followed"));
}

TEST_CASE("of workers that are silent together the one that waits for nobody is named, also behind a shell") {
  // The others wait on a socket that nobody writes to.
  const std::string script =
      "if [ $RANK = 1 ]; then sleep 1000; else python3 -c 'import socket; a, b = socket.socketpair(); "
      "a.recv(1)'; fi; true";
  Process job(agent({"--nproc", "3", "--stall_ms", soon_ms(2500), "--", "/bin/sh", "-c", script}),
              {"PATH=/usr/bin:/bin"});
  CHECK(job.wait() == 137);
  CAPTURE(job.err());
  CHECK(contains(job.err(), "the job failed: ranks 0-2 hang: no progress for 2.5 s\n"));
  CHECK(contains(job.err(), "ranks 0, 2: "));
  CHECK(contains(job.err(), "rank 1: sleep"));
  CHECK(contains(job.err(), "likely cause: rank 1, which does not wait for another rank"));
}

TEST_CASE("workers that stop touching their heartbeat files together are judged by where they stand") {
  // They meet before the only sign that each gives: a machine may be busy when they start.
  const Folder folder;
  const std::string here = (folder.path() / "here").string();
  const std::string script =
      ": > " + here + "$RANK; until [ -e " + here + "0 ] && [ -e " + here +
      "1 ]; do sleep 0.02; done; touch $DTRUN_HEARTBEAT_FILE; [ $RANK = 1 ] && exec sleep 1000; "
      "exec python3 -c 'import socket; a, b = socket.socketpair(); a.recv(1)'";
  Process job(agent({"--nproc", "2", "--heartbeat_ms", soon_ms(4000), "--", "/bin/sh", "-c", script}),
              {"PATH=/usr/bin:/bin"});
  CHECK(job.wait() == 137);
  CAPTURE(job.err());
  CHECK(contains(job.err(), "hang: no progress for 4 s\n"));
  CHECK(contains(job.err(), "likely cause: rank 1, which does not wait for another rank"));
}

TEST_CASE("where the workers stood is written before a debugger puts its own wait there") {
  Folder logs;
  Process job(agent({"--nproc", "2", "--stall_ms", soon_ms(800), "--log_dir", logs.path().string(), "--",
                     "/bin/sh", "-c", "exec sleep 1000"}));
  CHECK(job.wait() == 137);
  const std::string stacks = read_if_there(logs.path() / "test/attempt_1/1/stacks.txt");
  CAPTURE(stacks);
  CHECK(contains(stacks, "S (sleeping), clock_nanosleep, in "));
  CHECK_FALSE(contains(stacks, "ptrace_stop"));
}

TEST_CASE("one worker's output or computation keeps its waiting peers from being taken for hung") {
  const auto job = [](const std::string& busy) {
    const std::string script = "if [ $RANK = 0 ]; then " + busy + "; else exec sleep 6; fi; exit 0";
    return agent({"--nproc", "2", "--stall_ms", soon_ms(3000), "--", "/bin/sh", "-c", script});
  };
  Process writes(job("for i in $(seq 60); do echo $i; sleep 0.1; done"));
  Process computes(job("timeout 6 sh -c 'while :; do :; done'"));
  for (Process* one : {&writes, &computes}) {
    CHECK(one->wait() == 0);
    CHECK(one->err() == "");
  }
}

TEST_CASE("a hang uses up a restart like any other failure") {
  const std::string script = "[ $DTRUN_RESTART_COUNT = 1 ] || exec sleep 1000";
  Process job(agent({"--max_restarts", "1", "--stall_ms", soon_ms(800), "--", "/bin/sh", "-c", script}));
  CHECK(job.wait() == 0);
  CHECK(contains(job.err(), "restart 1 of 1"));
}

TEST_CASE("a stopped agent does not take its workers for hung when it wakes up") {
  // The worker's heartbeats stop with the agent and go on a little after it, as after a suspended machine.
  const std::string script = "while :; do touch $DTRUN_HEARTBEAT_FILE; echo beat; sleep 0.1; done";
  Process job(agent({"--heartbeat_ms", soon_ms(4000), "--", "/bin/sh", "-c", script}));
  REQUIRE(job.wait_for_out("beat"));
  pid_t worker = -1;
  for (pid_t pid : dtrun::test::processes_with("echo beat")) {
    if (pid != job.pid() && getpgid(pid) == pid) worker = pid;
  }
  REQUIRE(worker > 0);
  kill(-worker, SIGSTOP);
  job.signal(SIGSTOP);
  usleep(9000000);  // the time that passes is what is tested
  job.signal(SIGCONT);
  usleep(300000);
  kill(-worker, SIGCONT);
  const std::size_t before = job.out().size();
  CHECK(eventually([&] { return job.out().size() > before + 200; }));
  CHECK(job.err() == "");
  job.signal(SIGTERM);
  CHECK(job.wait() == 143);
}

TEST_CASE("a worker that waits for us to pass on its output is not hung") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string out = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(ends[1]);
  const std::string command =
      "exec " + dtrun::test::shell_text(agent_with({"--stall_ms", soon_ms(600)}, {"bulk", "50"}));
  Process job({"/bin/sh", "-c", command + " > " + out});
  CHECK_FALSE(eventually([&] { return !is_alive(job.pid()) || contains(job.err(), "no progress"); },
                         std::chrono::milliseconds(3000)));
  job.signal(SIGTERM);
  CHECK(eventually([&] {
    job.signal(SIGTERM);
    return !is_alive(job.pid());
  }));
  CHECK(job.wait() == 143);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a worker of the built-in trainer's kind hangs when its pulse stands still, though it reports") {
  Process job(trainer_agent({"--heartbeat_ms", soon_ms(1000)}), {"TEST_WORKER_MODE=hang"});
  CHECK(job.wait() == 137);
  CHECK(contains(job.err(), "rank 0: no progress for 1 s"));
  Process alive(trainer_agent({"--heartbeat_ms", soon_ms(1000)}), {"TEST_WORKER_MODE=slow"});
  CHECK(alive.wait() == 0);
  CHECK_FALSE(contains(alive.err(), "no progress"));
}

TEST_CASE(
    "of workers that fall silent together only the one that does not wait is ended, and the other goes on") {
  // Workers whose silences begin within half of that time count as silent together.
  Process job(trainer_agent({"--nproc", "2", "--max_restarts", "1", "--heartbeat_ms", soon_ms(4000)}),
              {"TEST_WORKER_MODE=hang_together"});
  CHECK_MESSAGE(job.wait() == 0, job.err());
  CHECK_MESSAGE(contains(job.err(), "rank 0 hangs: "), job.err());
  CHECK_MESSAGE(contains(job.out(), "rank 1 goes on"), job.err());
}

}  // namespace dtrun::agent::test::hang_guard_test
