// How workers end, and what dtrun makes of it: real processes.
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/agent/agent_process.h"
#include "tests/support/files.h"

namespace dtrun::agent::test::exit_test {

using dtrun::test::contains;
using dtrun::test::read_text;
using dtrun::test::write_text;

TEST_CASE("workers that all end with 0 are exit code 0 and no word more") {
  Process job(agent({"--nproc", "3", "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"}));
  CHECK(job.wait() == 0);
  for (const char* line :
       {"[default:0] rank 0 of 3\n", "[default:1] rank 1 of 3\n", "[default:2] rank 2 of 3\n"}) {
    CHECK(job.out().find(line) != std::string::npos);
  }
  CHECK(job.err() == "");
}

TEST_CASE("each of the 256 exit codes of a worker becomes dtrun's") {
  for (int code = 0; code < 256; ++code) {
    Process job(agent({"--", "/bin/sh", "-c", "exit " + std::to_string(code)}));
    CHECK(job.wait() == code);
    if (code != 0) CHECK(job.err().find("exit code " + std::to_string(code) + "\n") != std::string::npos);
  }
}

TEST_CASE("each signal that ends a worker is named and becomes 128+N") {
  for (int number = 1; number < 65; ++number) {
    if (number == 32 || number == 33) continue;  // used by the C library
    const bool harmless = number == SIGCHLD || number == SIGCONT || number == SIGURG || number == SIGWINCH;
    const bool stops = number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
    if (stops) continue;
    CAPTURE(number);
    Process job(agent_with({}, {"signal", std::to_string(number)}));
    CHECK(job.wait() == (harmless ? 0 : 128 + number));
    if (!harmless) CHECK(job.err().find("signal " + std::to_string(number)) != std::string::npos);
  }
}

TEST_CASE("exit codes arrive also where whoever started dtrun ignored that children end") {
  for (const char* ignored : {"CHLD", "CHLD,TERM,INT,HUP,QUIT,PIPE"}) {
    std::vector<std::string> argv = agent({"--", "/bin/sh", "-c", "exit 5"});
    argv.insert(argv.begin(), {"env", std::string("--ignore-signal=") + ignored});
    CHECK(Process(argv).wait() == 5);
  }
}

TEST_CASE("a program that does not exist is named, is 127, and is not tried again") {
  Process job(agent({"--nproc", "2", "--max_restarts", "3", "--", "no-such-program"}));
  CHECK(job.wait() == 127);
  CHECK(job.err().find("cannot start 'no-such-program': no such program in PATH") != std::string::npos);
  CHECK(job.err().find("restart 1") == std::string::npos);
  CHECK(Process(agent({"--", "/etc/passwd"})).wait() == 126);
}

TEST_CASE("a worker that fails takes the others along, and the report tells culprit from follower") {
  const std::string script =
      "if [ $RANK = 1 ]; then echo first >&2; echo boom >&2; exit 9; fi; exec sleep 1000";
  Process job(agent({"--nproc", "2", "--", "/bin/sh", "-c", script}));
  CHECK(job.wait() == 9);
  CHECK(job.err().find("rank 1 on ") != std::string::npos);
  CHECK(job.err().find("failed first: exit code 9") != std::string::npos);
  CHECK(job.err().find("    first\n    boom\n") != std::string::npos);
  CHECK(job.err().find("followed: rank 0 on ") != std::string::npos);
}

TEST_CASE(
    "a worker that takes its time to end after its error is the first, not the peer that ended of that") {
  const Folder flags;
  const std::string told = flags / "told", peer = flags / "peer";
  const std::string script =
      "if [ $RANK = 1 ]; then trap '' TERM; echo '{\"message\": \"a bad sample\"}' > "
      "$TORCHELASTIC_ERROR_FILE; touch " +
      told + "; until [ -s " + peer + " ] && [ ! -e /proc/$(cat " + peer +
      ") ]; do sleep 0.01; done; sleep 1; exit 9; fi; until [ -e " + told +
      " ]; do sleep 0.01; done; echo $$ > " + peer + "; exit 1";
  Process job(agent({"--nproc", "2", "--", "/bin/sh", "-c", script}));
  CHECK(job.wait() == 9);
  CHECK(job.err().find("failed first: exit code 9") != std::string::npos);
  CHECK(job.err().find("a bad sample") != std::string::npos);
  CHECK(job.err().find("followed: rank 0 on ") != std::string::npos);
}

TEST_CASE("restarts are used up, counted, and announced with their cause") {
  const std::string script = "echo run $TORCHELASTIC_RESTART_COUNT; [ $DTRUN_RESTART_COUNT = 2 ]";
  Process lucky(agent({"--max_restarts", "2", "--", "/bin/sh", "-c", script}));
  CHECK(lucky.wait() == 0);
  CHECK(lucky.out() == "[default:0] run 0\n[default:0] run 1\n[default:0] run 2\n");
  CHECK(lucky.err().find("restart 2 of 2 in 1 s\n") != std::string::npos);
  Process unlucky(agent({"--max_restarts", "2", "--", "/bin/sh", "-c", "exit 5"}));
  CHECK(unlucky.wait() == 5);
  CHECK(unlucky.err().find("restarts used: 2 of 2") != std::string::npos);
}

TEST_CASE("the report is also a file, with how the job failed for programs") {
  Folder logs;
  const std::string record =
      R"({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback:\n  here"}}})";
  const std::string script = "[ $RANK = 1 ] || exec sleep 1000; printf '%s' '" + record +
                             "' > $TORCHELASTIC_ERROR_FILE; echo words >&2; exit 7";
  Process job(agent({"--nproc", "2", "--log_dir", logs.path().string(), "--", "/bin/sh", "-c", script}));
  CHECK(job.wait() == 7);
  const auto file = logs.path() / "test/report.json";
  CHECK(job.err().find("  all of it: " + file.string() + "\n") != std::string::npos);
  CHECK(job.err().find("  traceback:\n    Traceback:\n      here\n") != std::string::npos);
  const auto report = nlohmann::json::parse(read_if_there(file));
  CHECK(report["exit_code"] == 7);
  CHECK(report["run_id"] == "test");
  CHECK(report["restarts"]["allowed"] == 0);
  const auto& first = report["first_failure"];
  CHECK(first["rank"] == 1);
  CHECK(first["local_rank"] == 1);
  CHECK(first["exit_code"] == 7);
  CHECK(first["signal"].is_null());
  CHECK(first["pid"].get<int>() > 0);
  CHECK(first["host"] == dtrun::host_name());
  CHECK(first["error"] == "ValueError: boom");
  CHECK(first["traceback"] == "Traceback:\n  here");
  CHECK(first["stderr_tail"] == nlohmann::json{"words"});
  CHECK(first["ended_at"].get<std::string>().ends_with("Z"));
  CHECK(report["followers"].size() == 1);
  CHECK(report["followers"][0]["rank"] == 0);
  CHECK(report["followers"][0]["signal_name"] == "SIGTERM");
  CHECK(report["followers"][0]["collateral"] == true);
}

TEST_CASE("a job that was stopped by a signal says so in its report file, and a success has its own") {
  Folder logs;
  const std::string folder = logs.path().string();
  Process stopped(agent({"--log_dir", folder, "--", "/bin/sh", "-c", "echo ready; exec sleep 1000"}));
  REQUIRE(stopped.wait_for_out("ready"));
  stopped.signal(SIGTERM);
  CHECK(stopped.wait() == 143);
  const auto report = nlohmann::json::parse(read_if_there(logs.path() / "test/report.json"));
  CHECK(report["reason"] == "stopped by SIGTERM");
  CHECK(report["goodput"].is_null());
  CHECK(report["first_failure"].is_null());
  CHECK(Process(agent({"--log_dir", folder, "--", "/bin/true"})).wait() == 0);
  const auto success = nlohmann::json::parse(read_if_there(logs.path() / "test/report.json"));
  CHECK(success["exit_code"] == 0);
  CHECK(success["goodput"]["training"] > 0);
}

TEST_CASE("Kubernetes gets the report, or why there was no job, and nothing of a success") {
  const Folder folder;
  const std::string message = folder / "message", variable = "DTRUN_TERMINATION_LOG=" + message;
  const auto told = [&](const std::vector<std::string>& words) {
    write_text(message, "earlier");
    Process job(agent(words), {variable});
    job.wait();
    return read_text(message);
  };
  const std::string report = told({"--nproc", "2", "--", "/bin/sh", "-c", "echo no data >&2; exit 3"});
  CHECK(report.starts_with("the job failed: rank "));
  CHECK(contains(report, "exit code 3"));
  CHECK(contains(report, "no data"));
  CHECK(contains(told({"--", "/nonexistent/program"}), "/nonexistent/program"));
  CHECK(told({"--", "/bin/true"}) == "earlier");
}

TEST_CASE("an error file in torch's format is part of the report") {
  const std::string script =
      R"(echo '{"message": {"message": "ValueError: boom"}}' > $TORCHELASTIC_ERROR_FILE; exit 1)";
  Process job(agent({"--", "/bin/sh", "-c", script}));
  CHECK(job.wait() == 1);
  CHECK(job.err().find("  error:\n    ValueError: boom\n") != std::string::npos);
}

TEST_CASE(
    "a long message on why a worker ends is cut, and one beyond all measure is that worker's fault alone") {
  for (const int size : {140'000, 5'000'000, 20'000'000}) {
    CAPTURE(size);
    const std::string script = "{ printf '{\"fault\": {\"exit_code\": 5, \"message\": \"begin '; head -c " +
                               std::to_string(size) +
                               " /dev/zero | tr '\\0' m; printf ' end\"}}\\n'; } >&$DTRUN_CONTROL_FD; exit 5";
    Process job(agent({"--", "/bin/sh", "-c", script}));
    CHECK(job.wait() == 5);
    CHECK(contains(job.err(), "mmm end\n") == (size < 16 << 20));
    CHECK(job.err().size() < 64 << 10);
  }
}

TEST_CASE("an error file that is a FIFO is none") {
  CHECK(Process(agent({"--", "/bin/sh", "-c", "mkfifo $TORCHELASTIC_ERROR_FILE; exit 3"})).wait() == 3);
}

TEST_CASE(
    "a worker sees only its three descriptors, the control socket, an empty signal mask and default "
    "dispositions") {
  Process job(agent_with({}, {"descriptors"}));
  CHECK(job.wait() == 0);
  CHECK(job.out() ==
        "[default:0] fds 0 1 2 3\n"
        "[default:0] SigBlk:\t0000000000000000\n"
        "[default:0] SigIgn:\t0000000000000000\n");
}

}  // namespace dtrun::agent::test::exit_test
