// A real training whose disk fails at each of its calls in turn. After any fault the newest checkpoint that
// had reached the disk can be loaded, the job reports what is missing, and the run that goes on from that
// checkpoint ends with the same bytes.
#include "tests/worker/trainer/disk_faults.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <functional>
#include <new>

#include "tests/worker/trainer/jobs.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/layout.h"

namespace dtrun::worker::disk_faults_test {
namespace {

using dtrun::test::DiskFault;
using dtrun::test::DiskLog;

struct SharedLog {
  SharedLog()
      : log(new (mmap(nullptr, sizeof(DiskLog), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                DiskLog) {}
  ~SharedLog() { munmap(log, sizeof(DiskLog)); }
  SharedLog(const SharedLog&) = delete;
  DiskLog* const log;
};

// Three checkpoints of which two stay, a line of metrics for every step, a model.
JobConfig config_in(const Job& job, const fs::path& output) {
  JobConfig config = job.config("unused");
  config.output_dir = output.string();
  config.model = {.type = ModelType::kMlp, .hidden_sizes = {6}};
  config.train.max_steps = 6;
  config.train.save_steps = 2;
  config.train.eval_steps = 0;
  config.train.save_total_limit = 2;
  return config;
}

struct Run {
  int exit_code = -1;  // 128+N for signal N
  std::string said;    // all lines, and the error with which it ended
};

// In a process of its own, in which `prepare` is called first.
Run run_after(const JobConfig& config, const std::function<void()>& prepare) {
  const Folder folder;
  const fs::path said = folder.path() / "said";
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream lines(said);
    set_log_reader([&](const std::string& line) { lines << line << std::endl; });
    prepare();
    int code = 0;
    try {
      TestLink link;
      const auto group = make_single_process_group();
      run_rank(config, *group, 1, link);
    } catch (const WorkerError& error) {
      lines << error.what() << std::endl;
      code = error.exit_code();
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          .said = read_text(said)};
}

Run run_with(const JobConfig& config, DiskFault fault, int at_call, DiskLog* log) {
  const std::string folder = fs::path(config.output_dir).parent_path().string();
  return run_after(config, [&] { dtrun::test::fail_disk(folder, fault, at_call, log); });
}

struct Disk {
  explicit Disk(const Job& job) : config(config_in(job, folder.path() / "out")) {}

  // -1: none. Fails the test if something is there that only looks like one.
  std::int64_t newest() const {
    return newest_step(config.output_dir, [](const std::string&) {}).value_or(-1);
  }
  // The newest of which it is certain that it reached the disk.
  std::int64_t synced() const {
    std::int64_t newest = -1;
    for (const int step : {2, 4, 6})
      if (shared.log->synced[step]) newest = step;
    return newest;
  }
  std::string model() const { return read_text(fs::path(config.output_dir) / "model.safetensors"); }

  Folder folder;
  SharedLog shared;
  const JobConfig config;
};

// How many calls an undisturbed run makes, and which of them write.
struct Calm {
  explicit Calm(const Job& job) : disk(job) {
    const Run run = run_with(disk.config, DiskFault::kNone, 0, disk.shared.log);
    REQUIRE_MESSAGE(run.exit_code == 0, run.said);
    REQUIRE(disk.newest() == 6);
    REQUIRE((disk.shared.log->synced[2] && disk.shared.log->synced[4] && disk.shared.log->synced[6]));
    model = disk.model();
  }
  const DiskLog& log() const { return *disk.shared.log; }

  Disk disk;
  std::string model;
};

// Checks the results of a run that the disk disturbed, and of the run that goes on.
void check_what_is_left(const Disk& disk, const std::string& model) {
  const std::int64_t newest = disk.newest();
  CHECK(newest >= disk.synced());
  SharedLog calm;
  const Run again = run_with(disk.config, DiskFault::kNone, 0, calm.log);
  CHECK_MESSAGE(again.exit_code == 0, again.said);
  const std::string from = "resumed from step " + std::to_string(newest) + " of 6";
  CHECK_MESSAGE(contains(again.said, from) == (newest >= 0), again.said);
  CHECK(disk.model() == model);
}

TEST_CASE(
    "killed or without power at any call, a run has its newest checkpoint and ends with the same bytes") {
  const Job job;
  const Calm calm(job);
  REQUIRE(calm.log().calls > 60);
  REQUIRE(calm.log().calls < dtrun::test::kMostDiskCalls);
  int began_again = 0, went_on = 0;
  for (const DiskFault fault : {DiskFault::kKill, DiskFault::kPowerCut}) {
    for (int call = 0; call < calm.log().calls; ++call) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(call);
      CAPTURE(std::string(calm.log().names[call]));
      const Disk disk(job);
      const Run run = run_with(disk.config, fault, call, disk.shared.log);
      // The thread that writes may be later than in the calm run, so that the last calls are not reached.
      CHECK((run.exit_code == 128 + SIGKILL || call > calm.log().calls - 5));
      ++(disk.synced() < 0 ? began_again : went_on);
      check_what_is_left(disk, calm.model);
    }
  }
  CHECK(began_again > 0);
  CHECK(went_on > 0);
}

TEST_CASE(
    "a disk that is full, broken or slow to take at any call loses no checkpoint that it had, and is told "
    "of") {
  const Job job;
  const Calm calm(job);
  int told = 0, ended = 0;
  for (const DiskFault fault : {DiskFault::kFull, DiskFault::kBroken, DiskFault::kShort}) {
    for (int call = 0; call < calm.log().calls; ++call) {
      if (fault == DiskFault::kShort && !calm.log().writes[call]) continue;
      CAPTURE(static_cast<int>(fault));
      CAPTURE(call);
      CAPTURE(std::string(calm.log().names[call]));
      const Disk disk(job);
      const Run run = run_with(disk.config, fault, call, disk.shared.log);
      CAPTURE(run.said);
      if (fault == DiskFault::kShort) CHECK(run.exit_code == 0);
      if (run.exit_code != 0) {
        ++ended;
        CHECK((run.exit_code == kExitIo || run.exit_code == kExitCannotCreate));
        CHECK(contains(run.said, disk.folder.path().string()));
      } else {
        CHECK(disk.model() == calm.model);
      }
      const bool* const synced = disk.shared.log->synced;
      const bool to_its_end = run.exit_code == 0 || contains(run.said, "model.safetensors");
      if (to_its_end && !(synced[2] && synced[4] && synced[6])) {
        ++told;
        CHECK(contains(run.said, "a checkpoint was not saved: cannot "));
      }
      check_what_is_left(disk, calm.model);
    }
  }
  CHECK(told > 0);
  CHECK(ended > 0);
}

TEST_CASE("what goes wrong in a checkpoint and is not the disk's fault ends the run") {
  const Job job;
  const Disk disk(job);
  const Run run = run_after(disk.config, [] {
    stop_point_hook = [](StopPoint point) {
      if (point == StopPoint::kWriting) throw WorkerError(kExitSoftware, "the writer has a bug");
    };
  });
  CHECK_MESSAGE(run.exit_code == kExitSoftware, run.said);
  CHECK(contains(run.said, "the writer has a bug"));
}

}  // namespace
}  // namespace dtrun::worker::disk_faults_test
