// Options at work: the real dtrun with real processes.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::command_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

Words command(Words options, const std::string& script) {
  options.insert(options.begin(), {kDtrun, "--rdzv_id", "t"});
  options.insert(options.end(), {"--", "/bin/sh", "-c", script});
  return options;
}

// OMP_NUM_THREADS is set so that nothing but what a test is about is said.
Ended run(const Words& options, const std::string& script, Words variables = {}) {
  variables.push_back("OMP_NUM_THREADS=1");
  return Process(command(options, script), variables).end();
}

std::string sorted(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

constexpr char kBoth[] = "echo out$RANK; echo err$RANK >&2";

}  // namespace

TEST_CASE("redirected streams are in the file and not on the console, teed ones in both") {
  Folder logs;
  const Ended job = run({"--log_dir", logs.path(), "--nproc_per_node", "2", "-r", "0:3", "-t", "1:1"}, kBoth);
  CHECK(job.exit_code == 0);
  CHECK(job.out == "[default:1] out1\n");
  CHECK(job.err == "[default:1] err1\n");
  const auto attempt = logs.path() / "t/attempt_1";
  CHECK(read_if_there(attempt / "0/stdout.log") == "out0\n");
  CHECK(read_if_there(attempt / "0/stderr.log") == "err0\n");
  CHECK(read_if_there(attempt / "1/stdout.log") == "out1\n");
  CHECK_FALSE(std::filesystem::exists(attempt / "1/stderr.log"));
}

TEST_CASE("a failed worker's last lines are in the report though its stderr is redirected") {
  Folder logs;
  const Ended job = run({"--log_dir", logs.path(), "-r3"}, "echo the cause >&2; exit 3");
  CHECK(job.exit_code == 3);
  CHECK(job.err.find("    the cause") != std::string::npos);
  CHECK(job.err.find("[default:0]") == std::string::npos);
}

TEST_CASE("files without a log directory are in a temporary one that is named") {
  Folder scratch;
  const Ended job = run({"--redirects", "1"}, "echo hidden", {"TMPDIR=" + scratch.path().string()});
  CHECK(job.out.empty());
  const std::string intro = "dtrun: --redirects without --log_dir: files are in ";
  REQUIRE(job.err.starts_with(intro));
  const std::string folder = job.err.substr(intro.size(), job.err.find('\n') - intro.size());
  CHECK(read_if_there(std::filesystem::path(folder) / "t/attempt_1/0/stdout.log") == "hidden\n");
}

TEST_CASE("the ranks' filter hides the others on the console, not in their files") {
  Folder logs;
  const Ended job =
      run({"--log_dir", logs.path(), "--nproc_per_node", "3", "--local_ranks_filter", "2"}, "echo out$RANK");
  CHECK(job.out == "[default:2] out2\n");
  CHECK(read_if_there(logs.path() / "t/attempt_1/0/stdout.log") == "out0\n");
}

TEST_CASE("lines with a word of the filters are gathered from all ranks, with their prefix") {
  Folder logs;
  const Ended job = run({"--log_dir", logs.path(), "--nproc_per_node", "2", "--duplicate_stdout_filters",
                         "apple,pe,,ar", "--duplicate_stderr_filters", "plum"},
                        "echo an apple from $RANK; echo pe,ar$RANK; echo pear; echo plum$RANK >&2");
  CHECK(job.exit_code == 0);
  const auto attempt = logs.path() / "t/attempt_1";
  CHECK(sorted(read_if_there(attempt / "filtered_stdout.log")) ==
        "[default:0] an apple from 0\n[default:0] pe,ar0\n[default:1] an apple from 1\n[default:1] pe,ar1\n");
  CHECK(sorted(read_if_there(attempt / "filtered_stderr.log")) == "[default:0] plum0\n[default:1] plum1\n");
}

TEST_CASE("lines carry the prefix that was asked for, files do not") {
  Folder logs;
  const Ended job = run(
      {"--log_dir", logs.path(), "--role", "reader", "--log_prefix", "{role}/{local_rank} |"}, "echo hello");
  CHECK(job.out == "reader/0 | hello\n");
  CHECK(read_if_there(logs.path() / "t/attempt_1/0/stdout.log") == "hello\n");
  CHECK(run({"--log_prefix="}, "echo hello").out == "hello\n");
  CHECK(run({}, "echo hello", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>:"}).out == "<0>:hello\n");
}

TEST_CASE("timestamps begin every line, on the console and in the file, and a line in parts has one") {
  Folder logs;
  const Ended job =
      run({"--log_dir", logs.path(), "--log_timestamps"}, "printf one; printf 'and\\ntwo\\n'; printf three");
  const std::string time = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z )";
  const std::string prefix = R"(\[default:0\] )";
  CHECK(std::regex_match(
      job.out, std::regex(time + prefix + "oneand\n" + time + prefix + "two\n" + time + prefix + "three\n")));
  CHECK(std::regex_match(read_if_there(logs.path() / "t/attempt_1/0/stdout.log"),
                         std::regex(time + "oneand\n" + time + "two\n" + time + "three")));
}

TEST_CASE("a log file that reaches its size begins anew, and lines stay whole") {
  Folder logs;
  const Ended job = run({"--log_dir", logs.path(), "-r", "1", "--log_max_size", "1K"},
                        "for i in $(seq 100); do echo a line of thirty bytes, no $i; done");
  CHECK(job.exit_code == 0);
  const auto folder = logs.path() / "t/attempt_1/0";
  for (const char* name : {"stdout.log", "stdout.log.1", "stdout.log.2"}) {
    const std::string text = read_if_there(folder / name);
    CHECK(text.size() <= 1024 + 40);
    CHECK(text.starts_with("a line"));
    CHECK(text.ends_with("\n"));
  }
  CHECK(read_if_there(folder / "stdout.log").ends_with("no 100\n"));
}

TEST_CASE("a file that cannot be written sends the output to the console") {
  Folder logs;
  std::filesystem::create_directories(logs.path() / "t/attempt_1/0/stdout.log");  // a folder in its place
  const Ended job = run({"--log_dir", logs.path(), "-r", "3"}, "echo rescued");
  CHECK(job.out == "[default:0] rescued\n");
  CHECK(job.err.find("goes to the console only") != std::string::npos);
}

TEST_CASE("MASTER_PORT and MASTER_ADDR are those that were given") {
  const std::string port = std::to_string(free_port());
  const Ended job =
      run({"--master_addr", "localhost", "--master_port", port}, "echo $MASTER_ADDR:$MASTER_PORT");
  CHECK(job.out == "[default:0] localhost:" + port + "\n");
}

TEST_CASE("a port that somebody else has is refused before anything starts") {
  const int fd = bound_to(0);
  REQUIRE(listen(fd, 1) == 0);
  const Ended job = run({"--master_port", std::to_string(port_of(fd))}, "echo started");
  close(fd);
  CHECK(job.exit_code == 69);
  CHECK(job.out.empty());
  CHECK(job.err.find("Address already in use") != std::string::npos);
}

TEST_CASE("torchrun's static rendezvous: two agents, a master address and port, ranks as given") {
  const std::string port = std::to_string(free_port());
  const auto node = [&](const std::string& rank) {
    return command(
        {"--nnodes", "2", "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port", port},
        "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT");
  };
  Process second(node("1")), first(node("0"));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(first.out() == "[default:0] 0 of 2 at 127.0.0.1:" + port + "\n");
  CHECK(second.out() == "[default:1] 1 of 2 at 127.0.0.1:" + port + "\n");
}

TEST_CASE("nodes meet over IPv6, and the master's address is one of it" * doctest::test_suite("ipv6")) {
  const std::string loopback = std::string(31, '0') + "1 ";
  if (read_if_there("/proc/net/if_inet6").find(loopback) == std::string::npos) return skip("no IPv6 here");
  const int port = free_port();
  const auto node = [&] {
    return command({"--nnodes", "2", "--rdzv_endpoint", "[::1]:" + std::to_string(port)},
                   "echo $MASTER_ADDR");
  };
  Process first(node()), second(node());
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(first.out().ends_with(" ::1\n"));
  CHECK(second.out().ends_with(" ::1\n"));
}

TEST_CASE("the address for peers is the one that was chosen") {
  const std::string port = std::to_string(free_port());
  const auto node = [&](const std::string& rank) {
    return command({"--nnodes", "2", "--node_rank", rank, "--rdzv_endpoint", "127.0.0.1:" + port,
                    "--local_addr", "127.0.0." + std::to_string(7 + std::stoi(rank))},
                   "echo $MASTER_ADDR");
  };
  Process first(node("0")), second(node("1"));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(first.out() == "[default:0] 127.0.0.7\n");
  CHECK(second.out() == "[default:1] 127.0.0.7\n");
}

TEST_CASE("the env backend: every terminal exports its place, as for torch.distributed's own") {
  const std::string port = std::to_string(free_port());
  const auto terminal = [&](const std::string& rank) {
    return Words{"RANK=" + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port};
  };
  const Words words =
      command({"--rdzv_backend", "env"}, "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT");
  const std::string place = " of 2 at 127.0.0.1:" + port + "\n";
  Process second(words, terminal("1")), first(words, terminal("0"));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(first.out() == "[default:0] 0" + place);
  CHECK(second.out() == "[default:1] 1" + place);
}

TEST_CASE("without a prefix one worker's output is passed on byte for byte") {
  const std::string half = "head -c 2500000 /dev/zero | tr '\\0' ";
  const Ended job = run({"--log_prefix", ""}, half + "x; echo; printf 'a\\r\\000b'; " + half + "y");
  const std::string wanted =
      std::string(2500000, 'x') + "\n" + std::string("a\r\0b", 4) + std::string(2500000, 'y');
  CHECK(job.exit_code == 0);
  CHECK(job.out.size() == wanted.size());
  CHECK((job.out == wanted));
  CHECK(job.err == "");

  const Ended failed = run({"--log_prefix", ""}, "printf 'in a line' >&2; exit 3");
  CHECK(failed.err.starts_with("in a line\ndtrun: the job failed: rank 0 on "));

  const Ended two = run({"--log_prefix", "", "--nproc_per_node", "2"}, half + "x");
  CHECK(two.out.size() == 2 * (2500000 + 2500000 / 65536 + 1));  // lines of one worker do not split another's
}

TEST_CASE("a port that another program has for a moment delays the coordinator, and no more") {
  const int port = free_port();
  const int holder = bound_to(port);
  REQUIRE(holder >= 0);
  Process job(command({"--rdzv_endpoint", "127.0.0.1:" + std::to_string(port)}, "echo started"));
  CHECK_FALSE(job.wait_for_out("started", std::chrono::milliseconds(500)));
  close(holder);
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] started\n");
}

TEST_CASE("each worker of an exclusive binding runs on CPUs of its own" * doctest::test_suite("cores")) {
  cpu_set_t all;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  std::set<std::string> cores;  // each by its hardware threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all))
      cores.insert(read_if_there("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                 "/topology/thread_siblings_list"));
  }
  if (cores.size() < 2) return skip("one core");
  const Ended job = run({"--nproc_per_node", "2", "--numa_binding", "exclusive", "--log_prefix", ""},
                        "grep Cpus_allowed_list /proc/self/status");
  CHECK(job.exit_code == 0);
  const std::string lines = sorted(job.out);
  const std::size_t half = lines.find('\n') + 1;
  CHECK(lines.substr(0, half) != lines.substr(half));
}

TEST_CASE("virtual local ranks give each worker its own GPU as the only one") {
  const Ended job = run({"--nproc_per_node", "2", "--virtual_local_rank", "--log_prefix", ""},
                        "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES", {"CUDA_VISIBLE_DEVICES=4,6"});
  CHECK(sorted(job.out) == "0 0 4\n1 0 6\n");
}

TEST_CASE("SIGUSR1 is passed on to the workers, unless --signals_to_handle makes it end the job") {
  const std::string script = "trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
  Process passed(command({}, script));
  REQUIRE(passed.wait_for_out("ready"));
  passed.signal(SIGUSR1);
  CHECK(passed.wait() == 5);
  Process ended(command({"--signals_to_handle", "SIGUSR1"}, script));
  REQUIRE(ended.wait_for_out("ready"));
  ended.signal(SIGUSR1);
  CHECK(ended.wait() == 128 + SIGUSR1);
  CHECK(ended.out().find("got it") != std::string::npos);
}

TEST_CASE("a script that lies anywhere runs with runpy, as its own main module" *
          doctest::test_suite("python")) {
  if (std::system("command -v python3 >/dev/null") != 0)
    return skip("there is no python3 (scripts/setup --tests)");
  Folder folder;
  const auto script = folder.path() / "script";
  std::ofstream(script) << "import sys\nprint(__name__, sys.argv[1:], sys.argv[0] == __file__)\n";
  Process job({kDtrun, "--run_path", script.string(), "a", "b"});
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] __main__ ['a', 'b'] True\n");
}

TEST_CASE("subcommands have the launcher's manners: spellings, beginnings, the last of a repeated option") {
  const auto refused = [](Words words) {
    words.insert(words.begin(), kDtrun);
    Process job(words, {"DTRUN_RDZV_ENDPOINT=", "PET_RDZV_ENDPOINT=127.0.0.1:1"});
    const int code = job.wait();
    return std::to_string(code) + " " + job.err();
  };
  CHECK(refused({"status"}) == "69 dtrun: no coordinator at 127.0.0.1:1 (Connection refused)\n");
  CHECK(refused({"status", "--rdzv_endpoint", "a:1", "--rdzv-end=127.0.0.1:2"}) ==
        "69 dtrun: no coordinator at 127.0.0.1:2 (Connection refused)\n");
  CHECK(refused({"status", "--rdzv_endpoint=h:0"}) ==
        "64 dtrun: --rdzv_endpoint=h:0: expected a port from 1 to 65535\n");
  CHECK(refused({"status", "--rdzv_id"}) == "64 dtrun: --rdzv_id needs a value (ID)\n");
  CHECK(refused({"status", "me", "--json", "you"}) ==
        "64 dtrun: dtrun status takes no further argument \"you\" (dtrun status --help)\n");
  CHECK(refused({"status", "me", "--color", "red"}) ==
        "64 dtrun: --color=red: expected auto, always or never\n");
  CHECK(refused({"status", "me", "--exit-status"}) ==
        "64 dtrun: --exit_status is for one run that is watched; use dtrun status --watch RUN_ID\n");
  CHECK(refused({"status", "me", "--until", "runing"}) ==
        "64 dtrun: --until=runing: expected gathering, running, stopping or over, did you mean running?\n");
  const std::string one =
      "64 dtrun: --until is for one run, and without --watch: "
      "dtrun status RUN_ID --until PHASE\n";
  CHECK(refused({"status", "--until", "over"}) == one);
  CHECK(refused({"status", "me", "--watch", "--until", "over"}) == one);
  CHECK(refused({"store", "--ready-fd", "987"}) ==
        "64 dtrun: --ready_fd=987: expected the number of an open descriptor above 2\n");
  CHECK(refused({"store", "--ready-fd", "2"}) ==
        "64 dtrun: --ready_fd=2: expected the number of an open descriptor above 2\n");
  CHECK(refused({"store", "--bind=", "--port=0"}) == "64 dtrun: --bind=: expected an address of this host\n");
  CHECK(refused({"store", "--port", "65536"}) ==
        "64 dtrun: --port=65536: expected a port from 0 (any free one) to 65535\n");
  CHECK(refused({"store", "--prot", "1"}) ==
        "64 dtrun: unknown option --prot, did you mean --port? (dtrun store --help lists all)\n");
}

TEST_CASE("times for tests: a wrong name or value is refused, and no worker inherits them") {
  const auto refused = [](const std::string& times) {
    return dtrun::test::run({kDtrun, "status"}, {"DTRUN_TEST_TIMES=" + times});
  };
  CHECK(refused("paus=1").exit_code == 64);
  CHECK(refused("paus=1").err == "dtrun: DTRUN_TEST_TIMES: unknown time \"paus\", did you mean pause?\n");
  CHECK(refused("pause").err == "dtrun: DTRUN_TEST_TIMES pause=: expected a number of seconds, 0 or more\n");
  CHECK(refused("pause=1,until_gone=soon").err ==
        "dtrun: DTRUN_TEST_TIMES until_gone=soon: expected a number of seconds, 0 or more\n");
  const Ended job = dtrun::test::run({kDtrun, "--", "/bin/sh", "-c", "echo [$DTRUN_TEST_TIMES]"},
                                     {"DTRUN_TEST_TIMES=pause=1"});
  CHECK(job.exit_code == 0);
  CHECK(job.out == "[default:0] []\n");
}

TEST_CASE("a mistyped subcommand is answered with the right one; a program of such a name runs") {
  Folder folder;
  std::ofstream(folder.path() / "statsu") << "#!/bin/sh\necho it ran\n";
  std::filesystem::permissions(folder.path() / "statsu", std::filesystem::perms::owner_all);
  const std::string here = "PATH=" + folder.path().string() + ":" + getenv("PATH");
  Process mistyped({kDtrun, "statsu", "--json"});
  CHECK(mistyped.wait() == 64);
  CHECK(mistyped.err() == "dtrun: no program statsu, did you mean dtrun status? (dtrun help lists all)\n");
  Process meant({kDtrun, "--", "statsu"});
  CHECK(meant.wait() == 127);
  for (const Words& words : {Words{kDtrun, "statsu"}, Words{kDtrun, "--", "statsu"},
                             Words{kDtrun, (folder.path() / "statsu").string()}}) {
    Process program(words, {here});
    CHECK(program.wait() == 0);
    CHECK(program.out() == "[default:0] it ran\n");
  }
}

TEST_CASE("options come from PET_* and DTRUN_* as from the command line") {
  const Ended job =
      run({}, "echo $RANK", {"PET_NPROC_PER_NODE=2", "DTRUN_LOG_PREFIX=<{rank}>", "PET_LOG_PREFIX=x"});
  CHECK(sorted(job.out) == "<0> 0\n<1> 1\n");
}

TEST_CASE("what dtrun says is coloured where that is asked for, and nowhere else by itself") {
  const auto said = [](Words words, const Words& variables) {
    words.insert(words.begin(), kDtrun);
    Process job(words, variables);
    CHECK(job.wait() == 64);
    return job.err();
  };
  const std::string plain =
      "dtrun: unknown option --nodes_, did you mean --nnodes? (dtrun --help lists all)\n";
  const std::string coloured =
      "dtrun: \x1b[1;31munknown option --nodes_, \x1b[0m\x1b[36mdid you mean --nnodes?\x1b[0m\x1b[1;31m "
      "\x1b[0m\x1b[36m(dtrun --help lists all)\x1b[0m\n";
  CHECK(said({"--nodes_", "2"}, {}) == plain);
  CHECK(said({"--nodes_", "2"}, {"CLICOLOR_FORCE=1"}) == coloured);
  CHECK(said({"--nodes_", "2"}, {"CLICOLOR_FORCE=1", "NO_COLOR=1"}) == plain);
  CHECK(said({"--color", "always", "--nodes_", "2"}, {"NO_COLOR=1"}) == coloured);
  CHECK(said({"--color=never", "--nodes_", "2"}, {"CLICOLOR_FORCE=1"}) == plain);
  CHECK(said({"--nodes_", "2"}, {"DTRUN_COLOR=always"}) == coloured);
  CHECK(said({"--color", "red", "x"}, {}) == "dtrun: --color=red: expected auto, always or never\n");
}

TEST_CASE("a failure report on a pipe has colour only if it is asked for, its files never") {
  const std::string heading = "dtrun: \x1b[1;31mthe job failed: rank 0 on ";
  Folder logs;
  const Ended plain = run({}, "exit 3");
  CHECK(plain.err.find("dtrun: the job failed: rank 0 on ") != std::string::npos);
  CHECK(plain.err.find('\x1b') == std::string::npos);
  const Ended coloured = run({"--color", "always", "--log_dir", logs.path()}, "exit 3");
  CHECK(coloured.err.find(heading) != std::string::npos);
  CHECK(run({"--color", "never"}, "exit 3", {"CLICOLOR_FORCE=1"}).err.find('\x1b') == std::string::npos);
  for (const char* name : {"events.jsonl", "report.json"}) {
    const std::string text = read_if_there(logs.path() / "t" / name);
    CHECK(text.find("failed") != std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("u001b") == std::string::npos);
  }
}

TEST_CASE("another program's end is told only after restarts, with the time and their number") {
  CHECK(run({"--max_restarts", "2"}, "exit 0").err == "");
  Folder folder;
  const std::string script = "[ -e " + (folder.path() / "again").string() + " ] || { touch " +
                             (folder.path() / "again").string() + "; exit 3; }";
  const Ended job = run({"--max_restarts", "2"}, script);
  CHECK(job.exit_code == 0);
  CHECK_MESSAGE(std::regex_search(job.err, std::regex("\ndtrun: done: [0-9.]+ s in all, 1 restart\n$")),
                job.err);
}

TEST_CASE("a form of progress that a program cannot have is said to have no effect") {
  CHECK(run({"--progress", "json"}, "exit 0").err ==
        "dtrun: --progress=json has no effect: only the built-in trainer reports its progress\n");
  CHECK(run({"--progress", "none"}, "exit 0").err == "");
}

}  // namespace dtrun::command_test
