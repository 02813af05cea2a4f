// Workers' output from their pipes to the console and the log files: real processes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/agent/agent_process.h"
#include "tests/support/files.h"

namespace dtrun::agent::test::output_test {

TEST_CASE("a last line without a newline is shown whole, and logged as it was") {
  Folder logs;
  Process job(
      agent({"--log_dir", logs.path().string(), "--", "/bin/sh", "-c", "printf abc; printf 'x\\ny' >&2"}));
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] abc\n");
  CHECK(job.err() == "[default:0] x\n[default:0] y\n");
  CHECK(read_if_there(logs.path() / "test/attempt_1/0/stdout.log") == "abc");
  CHECK(read_if_there(logs.path() / "test/attempt_1/0/stderr.log") == "x\ny");
}

TEST_CASE("where no terminal is, a prompt and a bar are shown before their lines end") {
  Folder logs;
  const std::string answered = (logs.path() / "answered").string();
  const std::string script = "printf 'go on? '; printf '\\r10 %%\\r20 %%' >&2; until [ -e " + answered +
                             " ]; do sleep 0.05; done; echo yes; printf '\\r30 %%\\n' >&2";
  Process job(agent({"--log_dir", logs.path().string(), "--", "/bin/sh", "-c", script}));
  CHECK(job.wait_for_out("[default:0] go on? \n"));
  CHECK(job.wait_for_err("[default:0] 20 %\n"));
  dtrun::test::write_text(answered, "");
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] go on? \n[default:0] yes\n");
  CHECK(job.err() == "[default:0] 20 %\n[default:0] 30 %\n");
  CHECK(read_if_there(logs.path() / "test/attempt_1/0/stdout.log") == "go on? yes\n");
  CHECK(read_if_there(logs.path() / "test/attempt_1/0/stderr.log") == "\r10 %\r20 %\r30 %\n");
}

TEST_CASE("bytes of any value come through unchanged") {
  Folder logs;
  const std::string script = "head -c 300000 /dev/urandom | tee $TMPDIR/copy";
  Process job(agent({"--log_dir", logs.path().string(), "--", "/bin/sh", "-c", script}),
              {"TMPDIR=" + logs.path().string()});
  CHECK(job.wait() == 0);
  const std::string copy = read_if_there(logs.path() / "copy");
  CHECK(copy.size() == 300000);
  CHECK(read_if_there(logs.path() / "test/attempt_1/0/stdout.log") == copy);
}

TEST_CASE("100 MB of output lose no line") {
  Process job(agent_with({}, {"bulk", "100"}));
  CHECK(job.wait() == 0);
  CHECK(job.out().size() == 100u * 1024 * (1024 + sizeof "[default:0] " - 1));
}

TEST_CASE("a reader that has stopped reading does not make the agent deaf") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string out = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(ends[1]);
  const std::string command = "exec " + dtrun::test::shell_text(agent_with({}, {"bulk", "50"}));
  Process job({"/bin/sh", "-c", command + " > " + out});
  // The pipe is full and nobody reads: the worker is held back.
  pid_t worker = -1;
  CHECK(eventually([&] {
    for (pid_t pid : dtrun::test::processes_with("test_worker")) {
      if (read_if_there("/proc/" + std::to_string(pid) + "/wchan").find("pipe_w") != std::string::npos ||
          read_if_there("/proc/" + std::to_string(pid) + "/syscall").starts_with("1 ")) {
        worker = pid;
      }
    }
    return worker > 0;
  }));
  job.signal(SIGTERM);
  CHECK(eventually([&] { return !is_alive(worker); }));
  CHECK(eventually([&] {  // a second signal: do not wait for the reader
    job.signal(SIGTERM);
    return !is_alive(job.pid());
  }));
  CHECK(job.wait() == 143);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE(
    "a job that is over waits for a slow reader, whatever signal arrives that does not tell it to end") {
  Folder logs;
  const std::string gate = (logs.path() / "gate").string();
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  const std::string command =
      dtrun::test::shell_text(agent({"--log_dir", logs.path().string(), "--", "/usr/bin/seq", "20000"}));
  // The reader begins once somebody has opened the gate.
  Process job({"/bin/sh", "-c", command + " | { : < " + gate + "; wc -l; }"});
  REQUIRE(eventually(
      [&] { return read_if_there(logs.path() / "test/events.jsonl").find("\"end\"") != std::string::npos; }));
  for (pid_t pid : dtrun::test::processes_with(logs.path())) {
    const bool agent = read_if_there("/proc/" + std::to_string(pid) + "/cmdline").starts_with(binary(""));
    for (int number : {SIGWINCH, SIGCHLD, SIGCONT, SIGUSR1})
      if (agent) kill(pid, number);
  }
  const int opened = open(gate.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(job.wait() == 0);
  CHECK(job.out() == "20000\n");
  close(opened);
}

TEST_CASE("a worker that closes its output still ends with its own code") {
  CHECK(Process(agent_with({}, {"silent"})).wait() == 7);
}

TEST_CASE("events.jsonl tells what the agent did, one object a line") {
  Folder logs;
  Process job(agent({"--log_dir", logs.path().string(), "--", "/bin/sh", "-c", "exit 3"}));
  CHECK(job.wait() == 3);
  const std::string events = read_if_there(logs.path() / "test/events.jsonl");
  for (const char* event :
       {"start", "join", "start_workers", "worker_started", "worker_ended", "report_failure", "end"}) {
    CAPTURE(event);
    CHECK(events.find("\"event\":\"" + std::string(event) + "\"") != std::string::npos);
  }
}

TEST_CASE("a log directory that cannot be made is named before anything starts") {
  Process job(agent({"--log_dir", "/proc/nowhere", "--", "/bin/echo", "started"}));
  CHECK(job.wait() == 73);
  CHECK(job.err().find("--log_dir /proc/nowhere: cannot create") != std::string::npos);
  CHECK(job.out() == "");
}

}  // namespace dtrun::agent::test::output_test
