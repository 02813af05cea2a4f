// Those for whom a job's supervision does not wait: who does not read its output, and file systems that do
// not answer. Real pipes that nobody reads, and a real disk that is frozen (ioctl_fsfreeze).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::held_up_test {

using namespace dtrun::test;
using namespace std::chrono_literals;

namespace {

// A pipe that is full as soon as somebody writes 64 KiB: it has a reader, who reads nothing.
class StoppedReader {
 public:
  StoppedReader() {
    REQUIRE(mkfifo(path().c_str(), 0600) == 0);
    end_ = open(path().c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(end_ >= 0);
  }
  ~StoppedReader() { close(end_); }
  StoppedReader(const StoppedReader&) = delete;

  std::string path() const { return folder_ / "pipe"; }

 private:
  const Folder folder_;
  int end_ = -1;
};

// dtrun with its standard output there.
std::vector<std::string> into(const StoppedReader& reader, const std::vector<std::string>& argv) {
  return {"sh", "-c", "exec " + shell_text(argv) + " >" + reader.path()};
}

// A disk of its own, mounted for this process and its children, that can be frozen. A guard thaws it should
// the test be killed: nothing else would end those who wait for it.
class Disk {
 public:
  static std::optional<std::string> why_not() {
    if (geteuid() != 0) return "only root may mount a disk";
    const Ended made = run({"unshare", "-m", "sh", "-c",
                            "f=$(mktemp) && truncate -s 16M $f && mkfs.ext4 -q $f && mount -o loop $f /mnt; "
                            "code=$?; rm -f $f; exit $code"});
    return made.exit_code == 0 ? std::nullopt : std::optional("no loop device: " + made.err);
  }

  Disk() {
    REQUIRE(unshare(CLONE_NEWNS) == 0);
    REQUIRE(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    const std::string image = folder_ / "image";
    std::filesystem::create_directories(path());
    output_of({"truncate", "-s", "64M", image});
    output_of({"mkfs.ext4", "-q", image});
    output_of({"mount", "-o", "loop", image, path()});
    root_ = open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(root_ >= 0);
    guard_.reset(popen(("cat >/dev/null; fsfreeze -u " + path() + " 2>/dev/null").c_str(), "we"));
  }
  ~Disk() {
    thaw();
    close(root_);
    guard_.reset();
    umount2(path().c_str(), MNT_DETACH);
  }
  Disk(const Disk&) = delete;

  std::string path() const { return folder_ / "disk"; }
  void freeze() { REQUIRE(ioctl(root_, FIFREEZE, 0) == 0); }
  void thaw() { ioctl(root_, FITHAW, 0); }

 private:
  struct Close {
    void operator()(FILE* file) const { pclose(file); }
  };
  const Folder folder_;
  int root_ = -1;
  std::unique_ptr<FILE, Close> guard_;
};

constexpr std::chrono::seconds kSilence{8};  // more than Disk::kPatience, twice
constexpr std::chrono::seconds kFlush{2};

std::vector<std::string> times() {
  return {"DTRUN_TEST_TIMES=flush=" + std::to_string(soon(kFlush).count())};
}

// A worker says its process number in the folder, by rank and restart, and then a word now and then. As with
// torchrun, "$$" in arguments is one "$".
class Ticking {
 public:
  std::vector<std::string> argv() const {
    return {"sh", "-c",
            "echo $$$$ >" + (folder_ / "new").string() + ".$RANK && mv " + (folder_ / "new").string() +
                ".$RANK " + (folder_ / "pid").string() +
                ".$RANK.$TORCHELASTIC_RESTART_COUNT; while :; do echo tick; sleep 0.1; done"};
  }
  bool runs(int rank, int restart) const {
    return eventually([&] { return pid(rank, restart) > 0; }, 15s);
  }
  bool exists(int rank, int restart) const { return pid(rank, restart) > 0; }
  pid_t pid(int rank, int restart) const {
    const std::string name = "pid." + std::to_string(rank) + "." + std::to_string(restart);
    return std::atoi(read_if_there(folder_ / name).c_str());
  }

 private:
  const Folder folder_;
};

std::vector<std::string> node(int port, int rank, const std::vector<std::string>& options) {
  return joined({kDtrun, "--nnodes", "2", "--nproc_per_node", "1", "--node_rank", std::to_string(rank),
                 "--rdzv_endpoint", "127.0.0.1:" + std::to_string(port), "--rdzv_conf",
                 "keep_alive_interval=1,keep_alive_max_attempt=" + std::to_string(soon(kSilence).count()),
                 "--max_restarts", "3"},
                options);
}

}  // namespace

TEST_CASE("nobody reads the output: a rank that fails is seen, and the job ends") {
  const StoppedReader reader;
  Folder folder;
  const std::string flood = (folder / "flood").string();
  // Rank 1 is silent, and fails once rank 0 is stuck in its write.
  const std::string worker =
      "if [ $RANK = 1 ]; then until [ -e " + flood +
      " ]; do sleep 0.1; done; sleep 2; exit 9; fi; "
      "i=0; while :; do echo a line of output that fills the pipe, and dtrun\\'s queue; "
      "i=$((i+1)); [ $i != 5000 ] || touch " +
      flood + "; done";
  Process job(into(reader, {kDtrun, "--standalone", "--nproc_per_node", "2", "--log_dir", folder / "logs",
                            "--rdzv_id", "held", "--", "sh", "-c", worker}),
              times());
  const Ended ended = job.end(60s);
  CHECK(ended.exit_code == 9);
  CHECK_MESSAGE(contains(ended.err, "rank 1 on "), ended.err);
  CHECK_MESSAGE(contains(ended.err, "bytes are lost: nobody has read this output for 2 s"), ended.err);
  CHECK(contains(read_text(folder / "logs/held/events.jsonl"), "\"event\":\"end\""));
}

TEST_CASE("nobody reads the output: SIGTERM ends the job") {
  const StoppedReader reader;
  Process job(into(reader, {kDtrun, "--standalone", "--nproc_per_node", "2", "--", "sh", "-c",
                            "[ $RANK = 1 ] && echo begun >&2; exec yes"}),
              times());
  REQUIRE(job.wait_for_err("begun"));
  std::this_thread::sleep_for(1s);
  job.signal(SIGTERM);
  const Ended ended = job.end(60s);
  CHECK(ended.exit_code == 128 + SIGTERM);
  CHECK_MESSAGE(contains(ended.err, "bytes are lost"), ended.err);
}

TEST_CASE("a reader who comes back in time loses nothing") {
  Folder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int end = open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC);
  Process job({"sh", "-c",
               "exec " + shell_text({kDtrun, "--standalone", "--", "seq", "400000"}) + " >" +
                   (folder / "pipe").string()});
  std::this_thread::sleep_for(2s);
  std::string text;
  char bytes[65536];
  while (!text.ends_with(" 400000\n")) {
    const ssize_t n = read(end, bytes, sizeof bytes);
    REQUIRE(n > 0);
    text.append(bytes, static_cast<std::size_t>(n));
  }
  CHECK(job.end().exit_code == 0);
  close(end);
  CHECK(std::ranges::count(text, '\n') == 400000);
}

TEST_SUITE_BEGIN("frozen_disks");

TEST_CASE("the disk of the logs is frozen: a rank that fails is started again, and no node is given up") {
  if (const auto why = Disk::why_not()) return skip(*why);
  Disk disk;
  Ticking program;
  const int port = free_port();
  Process first(node(port, 0, joined({"--"}, program.argv())), times());
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));  // it hosts the coordinator
  Process second(node(port, 1, joined({"--log_dir", disk.path() + "/logs", "--"}, program.argv())), times());
  REQUIRE_MESSAGE(program.runs(1, 0), (first.err() + second.err()));
  REQUIRE(second.wait_for_out("tick"));
  disk.freeze();
  std::this_thread::sleep_for(2 * kSilence);
  CHECK_MESSAGE(!contains(first.err(), "silent"), first.err());
  kill(program.pid(1, 0), SIGKILL);
  CHECK_MESSAGE(program.runs(0, 1), first.err());
  CHECK_MESSAGE(program.runs(1, 1), second.err());
  const pid_t last = program.pid(1, 1);
  second.signal(SIGTERM);
  CHECK(eventually([&] { return !is_alive(last); }, 10s));
  CHECK_MESSAGE(second.wait_for_err("bytes are lost: the file system"), second.err());
  CHECK_MESSAGE(first.wait_for_err("left (told to by SIGTERM)"), first.err());
  disk.thaw();  // the kernel lets no process end that waits for a frozen disk
  CHECK(second.end().exit_code == 128 + SIGTERM);
  first.signal(SIGTERM);
  CHECK(first.end().exit_code == 128 + SIGTERM);
  CHECK(contains(read_text(disk.path() + "/logs/none/events.jsonl"), "\"event\":\"start_workers\""));
}

TEST_CASE("temporary files and the registry are frozen: a rank that fails is started again") {
  if (const auto why = Disk::why_not()) return skip(*why);
  Disk disk;
  Ticking program;
  const int port = free_port();
  const auto environment = joined(times(), {"TMPDIR=" + disk.path(), "XDG_RUNTIME_DIR=" + disk.path()});
  Process first(node(port, 0, joined({"--"}, program.argv())), times());
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes"));  // it hosts the coordinator
  Process second(node(port, 1, joined({"--"}, program.argv())), environment);
  REQUIRE_MESSAGE(program.runs(1, 0), (first.err() + second.err()));
  REQUIRE(second.wait_for_out("tick"));
  disk.freeze();
  kill(program.pid(1, 0), SIGKILL);
  CHECK_MESSAGE(program.runs(0, 1), first.err());
  CHECK_MESSAGE(program.runs(1, 1), second.err());
  std::this_thread::sleep_for(2 * kSilence);
  CHECK_FALSE(program.exists(0, 2));
  kill(program.pid(0, 1), SIGKILL);
  CHECK_MESSAGE(program.runs(1, 2), second.err());
  second.signal(SIGTERM);
  CHECK_MESSAGE(second.wait_for_err("bytes are lost: the file system"), second.err());
  disk.thaw();
  CHECK(second.end().exit_code == 128 + SIGTERM);
  first.signal(SIGTERM);
  CHECK(first.end().exit_code == 128 + SIGTERM);
}

TEST_CASE("a trainer's output directory is frozen for a while: it goes on, with the workers that it had") {
  if (const auto why = Disk::why_not()) return skip(*why);
  Disk disk;
  const std::string out = disk.path() + "/out";
  Process job(endless_training(standalone(2), out, {"train.save_steps=5"}), times());
  REQUIRE_MESSAGE(trains(out, 3), job.err());
  disk.freeze();
  std::this_thread::sleep_for(2 * kSilence);
  disk.thaw();
  const long steps = steps_done(out);
  CHECK_MESSAGE(trains(out, steps + 10), job.err());
  job.signal(SIGTERM);
  const Ended ended = job.end();
  CHECK(ended.exit_code == 128 + SIGTERM);
  CHECK_MESSAGE(!contains(ended.err, "restart"), ended.err);
}

TEST_SUITE_END();

}  // namespace dtrun::held_up_test
