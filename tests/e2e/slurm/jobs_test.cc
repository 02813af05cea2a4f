// Jobs on a real Slurm: srun is the whole command line, whatever the shape of its step, and a job that Slurm
// stops goes on where it stopped.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/slurm/slurm_cluster.h"
#include "tests/e2e/training.h"
#include "tests/support/clock.h"
#include "tests/support/skip.h"

namespace dtrun::jobs_test {

using namespace dtrun::test;

namespace {

// A program that takes three seconds to save its state, in a job whose time limit is a minute, the least that
// Slurm knows. It runs beside the other tests.
constexpr char kSavesAtTheLimit[] = R"(#!/bin/bash
#SBATCH -J limited -N1 -n1 -p aside --time=1
trap '' TERM
srun DTRUN --log_prefix '' -- /bin/bash -c '
trap "echo told >> FOLDER/limited.told; sleep 3; echo saved >> FOLDER/limited.told; exit 0" TERM
while :; do sleep 0.2; done'
echo $? > FOLDER/limited.code
)";

const SlurmCluster& slurm() {
  static const SlurmCluster cluster(3);
  static const bool submitted = [] {
    std::string script = kSavesAtTheLimit;
    const auto put = [&](const std::string& word, const std::string& value) {
      for (std::size_t at = 0; (at = script.find(word, at)) != std::string::npos; at += value.size())
        script.replace(at, word.size(), value);
    };
    put("FOLDER", cluster.shared());
    put("DTRUN", shell_text({kDtrun}));
    write_text(cluster.shared() / "limited.sbatch", script);
    return cluster.run({"sbatch", "-o", "/dev/null", cluster.shared() / "limited.sbatch"}).exit_code == 0;
  }();
  REQUIRE(submitted);
  return cluster;
}

std::vector<std::string> srun(const std::vector<std::string>& shape,
                              const std::vector<std::string>& program) {
  return joined(joined({"srun"}, shape), program);
}

// The environment of each worker, a line each, sorted.
const std::vector<std::string> kTellPlace{kDtrun,
                                          "--log_prefix",
                                          "",
                                          "--",
                                          "/bin/sh",
                                          "-c",
                                          "echo $RANK $LOCAL_RANK/$LOCAL_WORLD_SIZE $WORLD_SIZE $(hostname)"};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string sorted(const std::string& text) {
  std::istringstream stream(text);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  std::string all;
  for (const auto& line : lines) all += line + "\n";
  return all;
}

// Holds them until the file that it makes is gone.
constexpr char kHoldPorts[] = R"(
import os, socket, sys, time
row = 10240 + (int(os.environ['SLURM_JOB_ID']) * 31 + 1) % 2048 * 8
held = [socket.create_server(('', port)) for port in (row, row + 1)]
name = sys.argv[1] + os.environ['SLURM_NODEID']
open(name, 'w').close()
while os.path.exists(name): time.sleep(0.1)
)";

const std::vector<std::string> kShort{"train.max_steps=40"};
// Long enough to be stopped on the way.
constexpr long kLongSteps = 400;
const std::vector<std::string> kLong{"train.max_steps=400", "train.save_steps=0"};

// One worker on this machine, which nobody stops: the result that every other run must equal.
std::string expected(const std::vector<std::string>& job) {
  static std::map<std::vector<std::string>, std::string> known;
  std::string& bytes = known[job];
  if (!bytes.empty()) return bytes;
  const Folder folder;
  const Ended ended = run(training_on_real_images(standalone(1), folder / "out", job));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  return bytes = model(folder / "out");
}

std::vector<std::string> job_in(const std::filesystem::path& output, const std::vector<std::string>& job,
                                const std::vector<std::string>& options = {}) {
  return training_on_real_images(joined({"--lanes", "1"}, options), output, job);
}

// The last step of a line of training, by each attempt to run the job.
std::vector<long> steps_of(const std::filesystem::path& output) {
  std::istringstream lines(read_if_there(output / "metrics.jsonl"));
  std::vector<long> steps;
  for (std::string line; std::getline(lines, line);) {
    const std::string word = "\"event\":\"train\",\"step\":";
    if (const auto at = line.find(word); at != line.npos)
      steps.push_back(std::stol(line.substr(at + word.size())));
  }
  return steps;
}

bool trains(const std::filesystem::path& output, long lines = 20) {
  return eventually([&] { return steps_done(output) >= lines; });
}

// Every step once, in order: the run went on at the step at which it had stopped.
void check_goes_on(const std::filesystem::path& output, long count) {
  const auto steps = steps_of(output);
  CHECK(steps.size() == static_cast<std::size_t>(count));
  CHECK(std::ranges::is_sorted(steps));
}

bool nothing_left() {
  return eventually([] {
    for (int node = 1; node <= 3; ++node)
      if (!slurm().processes(node).empty()) return false;
    return true;
  });
}

// Submits the output of `dtrun slurm`, as a user does. The job's number.
std::string submit(const std::string& nodes, const std::filesystem::path& output, const std::string& log) {
  const Ended written = run(joined(
      {kDtrun, "slurm", "--nnodes", nodes, "--partition", "low", kConfig},
      {"output_dir=" + output.string(), "train.eval_steps=0", "train.logging_steps=1", kLong[0], kLong[1]}));
  REQUIRE_MESSAGE(written.exit_code == 0, written.err);
  const std::string script = output.string() + ".sbatch";
  write_text(script, written.out);
  const std::string with_dtrun = std::string("PATH=") + DTRUN_BIN_DIR + ":/usr/bin:/bin";
  return first_line(slurm().run({"env", with_dtrun, "sbatch", "--parsable", "-o", log, script}).out);
}

// On a busy machine Slurm 22.05 may leave a job PENDING (Resources) on idle nodes that an earlier one has
// just been requeued from. It starts the job when it is configured anew.
class LookAgain {
 public:
  void if_due() {
    if (!patience_.is_over()) return;
    slurm().run({"scontrol", "reconfigure"});
    patience_ = Patience(kBetween);
  }

 private:
  static constexpr std::chrono::seconds kBetween{8};
  Patience patience_{kBetween};
};

// Slurm waits two minutes before it starts a job again, unless it is told not to. At once it would take the
// end of the first run's script for that of the second.
bool restarts(const std::string& job) {
  const auto shown = [&] { return slurm().run({"scontrol", "show", "job", job}).out; };
  const auto waits = [&] { return contains(shown(), "JobState=PENDING"); };
  if (!eventually(waits) || !nothing_left()) return false;
  std::this_thread::sleep_for(std::chrono::seconds(3));
  LookAgain look_again;
  return eventually([&] {
    slurm().run({"scontrol", "update", "JobId=" + job, "StartTime=now"});
    look_again.if_due();
    const std::string now = shown();
    return contains(now, "Restarts=1") &&
           (contains(now, "JobState=RUNNING") || contains(now, "JobState=COMPLETED"));
  });
}

}  // namespace

TEST_CASE("srun dtrun CONFIG: nodes and ranks are Slurm's, the model is that of one worker") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  CHECK(sorted(slurm().run(srun({"-N3"}, kTellPlace)).out) == "0 0/1 3 n1\n1 0/1 3 n2\n2 0/1 3 n3\n");

  const auto output = slurm().shared() / "three";
  const Ended ended = slurm().run(srun({"-N3"}, job_in(output, kShort)));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  for (const char* line : {"node 0 of 3 (n1), coordinator n1:", "node 2 of 3 (n3), coordinator n1:"})
    CHECK_MESSAGE(contains(ended.err, line), ended.err);
  CHECK(model(output) == expected(kShort));
  CHECK(nothing_left());
}

TEST_SUITE_BEGIN("long");

TEST_CASE("steps of other shapes: one node, several tasks on some nodes, on all") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  const Ended one = slurm().run(srun({"-N1"}, kTellPlace));
  CHECK(one.out.starts_with("0 0/1 1 n"));
  CHECK_MESSAGE(contains(one.err, ": one node (n"), one.err);
  CHECK(sorted(slurm().run(srun({"-n3", "-N2", "-w", "n1,n2"}, kTellPlace)).out) ==
        "0 0/2 3 n1\n1 1/2 3 n1\n2 0/1 3 n2\n");
  CHECK(sorted(slurm().run(srun({"-N2", "--ntasks-per-node=2", "-w", "n1,n3"}, kTellPlace)).out) ==
        "0 0/2 4 n1\n1 1/2 4 n1\n2 0/2 4 n3\n3 1/2 4 n3\n");
  // Cyclic distribution gives neighbours other nodes.
  CHECK(
      sorted(
          slurm().run(srun({"-N2", "--ntasks-per-node=2", "-m", "cyclic", "-w", "n1,n2"}, kTellPlace)).out) ==
      "0 0/2 4 n1\n1 0/2 4 n2\n2 1/2 4 n1\n3 1/2 4 n2\n");
  const auto output = slurm().shared() / "tasks";
  const Ended tasks = slurm().run(srun({"-N2", "--ntasks-per-node=2"}, job_in(output, kShort)));
  CHECK_MESSAGE(tasks.exit_code == 0, tasks.err);
  CHECK(model(output) == expected(kShort));

  const Ended refused =
      slurm().run(srun({"-N2", "--ntasks-per-node=2"}, {kDtrun, "--nproc_per_node", "2", "--", "/bin/true"}));
  CHECK(refused.exit_code == 64);
  CHECK_MESSAGE(contains(refused.err, "srun -N2 --ntasks-per-node=1"), refused.err);
}

TEST_CASE("two steps of one job at once do not meet; without srun one node runs and says so") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  const std::string dtrun = shell_text({kDtrun});
  const std::string both = "srun --overlap -N2 -n2 " + dtrun +
                           " --log_prefix 'a ' -- /bin/sh -c 'echo $WORLD_SIZE; "
                           "sleep 1' & srun --overlap -N2 -n2 " +
                           dtrun + " --log_prefix 'b ' -- /bin/sh -c 'echo $WORLD_SIZE; sleep 1' & wait; " +
                           dtrun + " --log_prefix 'c ' -- /bin/sh -c 'echo $WORLD_SIZE'";
  const Ended ended = slurm().run({"salloc", "-N2", "/bin/sh", "-c", both});
  CHECK_MESSAGE(sorted(ended.out) == "a 2\na 2\nb 2\nb 2\nc 1\n", ended.err);
  CHECK_MESSAGE(contains(ended.err, "one node, although the job has 2; srun"), ended.err);
}

TEST_CASE("a port of the row that others have is passed over") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  // The row follows from job and step: step 0 takes the first ports of step 1, on two of the three nodes.
  const std::string held = slurm().shared() / "held";
  const std::string script = "srun -N2 -n2 -w n1,n2 python3 -c \"" + std::string(kHoldPorts) + "\" '" + held +
                             "' & for i in 0 1; do while [ ! -e '" + held +
                             "'$i ]; do sleep 0.1; done; done; srun --overlap -N3 -n3 " +
                             shell_text({kDtrun}) +
                             " --log_prefix '' -- /bin/sh -c 'echo $WORLD_SIZE'; rm '" + held + "'?; wait";
  const Ended ended = slurm().run({"salloc", "-N3", "/bin/sh", "-c", script});
  CHECK_MESSAGE(ended.out == "3\n3\n3\n", ended.err);
}

TEST_CASE(
    "--signal: the checkpoint is written, 75, and the next run goes on at that step and adds to its logs") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  const auto output = slurm().shared() / "signal";
  const auto logs = slurm().shared() / "logs";
  const auto job = job_in(output, kLong, {"--log_dir", logs, "--rdzv_id", "mine"});
  const auto step = slurm().start(srun({"-N2", "-J", "signalled"}, job));
  REQUIRE_MESSAGE(trains(output), step->err());
  const std::string id = slurm().run({"squeue", "-h", "-n", "signalled", "-o", "%i"}).out;
  slurm().run({"scancel", "--signal=USR1", first_line(id)});
  CHECK(step->wait() == 75);
  CHECK_MESSAGE(contains(step->err(), "after SIGUSR1"), step->err());
  const auto done = steps_of(output).size();
  REQUIRE(done < kLongSteps);
  const Ended again = slurm().run(srun({"-N2"}, job));
  CHECK_MESSAGE(again.exit_code == 0, again.err);
  check_goes_on(output, kLongSteps);
  CHECK(model(output) == expected(kLong));
  const std::string events = read_text(logs / "mine" / "events.jsonl");
  CHECK(std::count(events.begin(), events.end(), '\n') > 8);
  CHECK(events.find("SIGUSR1") < events.rfind("\"event\":\"start\""));
  CHECK(nothing_left());
}

TEST_CASE("the agent of a node is killed: the others go on, and Slurm hears of it") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  int node = 0;
  SUBCASE("of any") { node = 3; }
  SUBCASE("of the one with the coordinator") { node = 1; }
  const auto output = slurm().shared() / ("killed" + std::to_string(node));
  const auto step = slurm().start(
      srun({"-N3", "--no-kill", "--kill-on-bad-exit=0"},
           job_in(output, kLong, {"--nnodes", "2:3", "--rdzv_conf", lost_after_two_seconds()})));
  REQUIRE_MESSAGE(trains(output), step->err());
  run(slurm().on(node, {"pkill", "-KILL", "-x", "dtrun"}));
  CHECK(step->wait() == 137);
  CHECK(model(output) == expected(kLong));
  CHECK(nothing_left());
}

TEST_CASE(
    "at the time limit a program has Slurm's KillWait to save, and is not hurried by the second SIGTERM") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  const auto code = slurm().shared() / "limited.code";
  REQUIRE(eventually([&] { return !read_if_there(code).empty(); }, std::chrono::minutes(3)));
  CHECK(read_text(code) == "75\n");
  CHECK(contains(read_text(slurm().shared() / "limited.told"), "saved\n"));
}

TEST_CASE("a node fails: fewer go on where they may, else Slurm queues the job again") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  std::string nodes;
  SUBCASE("2 or 3 nodes") { nodes = "2:3"; }
  SUBCASE("3 nodes") { nodes = "3"; }
  const bool fewer = nodes != "3";
  const auto output = slurm().shared() / ("failed" + nodes.substr(0, 1));
  const std::string log = output.string() + ".log";
  const std::string id = submit(nodes, output, log);
  REQUIRE_MESSAGE(trains(output), read_if_there(log));
  slurm().run({"scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test"});
  run(slurm().on(3, {"pkill", "-KILL", "-x", "slurmstepd|dtrun|dtrun-worker"}));
  if (fewer) {
    // srun ends with the lost task's code, where it has heard of it.
    const std::string state = slurm().await_state(id, {"FAILED", "COMPLETED"});
    CHECK_MESSAGE((state == "FAILED" || state == "COMPLETED"), state);
    CHECK_MESSAGE(contains(read_text(log), "going on with 4 workers on 2 nodes"), read_text(log));
  }
  slurm().run({"scontrol", "update", "NodeName=n3", "State=RESUME"});
  if (!fewer) {
    CHECK_MESSAGE(restarts(id), slurm().words(), read_if_there(log));
    CHECK(slurm().await_state(id, {"COMPLETED"}) == "COMPLETED");
  }
  CHECK_MESSAGE(model(output) == expected(kLong), read_text(log));
  CHECK(nothing_left());
}

TEST_CASE("preempted: saved within the grace, queued again, and goes on at that step") {
  if (const auto why = why_no_slurm(); !why.empty()) return skip(why);
  const auto output = slurm().shared() / "preempted";
  const std::string log = slurm().shared() / "job.log";
  const std::string id = submit("3", output, log);
  REQUIRE_MESSAGE(trains(output), read_if_there(log));
  const auto urgently = slurm().start({"srun", "-p", "high", "-N3", "--exclusive", "/bin/true"});
  LookAgain look_again;
  eventually(
      [&] {
        look_again.if_due();
        return !is_alive(urgently->pid());
      },
      std::chrono::minutes(2));
  const Ended urgent = urgently->end();
  CHECK_MESSAGE(urgent.exit_code == 0, urgent.err, slurm().words(), read_if_there(log));
  CHECK(steps_of(output).size() < kLongSteps);
  REQUIRE_MESSAGE(restarts(id), slurm().words(), read_if_there(log));
  CHECK(slurm().await_state(id, {"COMPLETED"}) == "COMPLETED");
  check_goes_on(output, kLongSteps);
  CHECK(model(output) == expected(kLong));
  CHECK_MESSAGE(contains(read_text(log), "after SIGTERM"), read_text(log));
}

TEST_SUITE_END();

}  // namespace dtrun::jobs_test
