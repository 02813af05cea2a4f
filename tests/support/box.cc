// box: the launcher in front of each entry of ctest, so that no entry meets another's load, port, name or
// process.
//
//   box --name ENTRY --timeout SECONDS [--outside] [--idle] [--costs FILE] -- COMMAND…
//
// A share of its own: a control group for the processor. Without one the kernel's autogroup gives each worker
// of a job, which is a session, as much as all tests together. --idle: the entry computes, and has what the
// others leave. A world of its own: namespaces for process ids, network (loopback alone), IPC and mounts, and
// an empty /tmp and /dev/shm.
// --outside keeps the machine's network. What is left of the entry when its command ends, ends with it.
// Without root a user namespace brings all this; where the machine has none either, the entry runs as it is.
// A fair clock: DTRUN_TEST_PRESSURE names the file that says how long something of the entry was ready and
// did not run (clock.h). The timeout is in fair time. A verdict: where the entry fails, sets a time of the
// product short (soon() in clock.h), and was stalled for a quarter of that time at a stretch, the failure
// says nothing. "inconclusive" is printed and the entry runs again, at most twice.
//
// The exit code is the command's, 128+N for signal N, 124 at the timeout. --costs: a line "ENTRY CPU_SECONDS
// WALL_SECONDS INCONCLUSIVE_RUNS" is added to the file.
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "tests/support/clock.h"

namespace fs = std::filesystem;

namespace {

using std::chrono::milliseconds;
using Micros = std::chrono::microseconds;

constexpr int kTimedOut = 124, kSkipped = 77, kNoWorld = 99;
constexpr int kRuns = 3;
constexpr milliseconds kSample{50};

struct Options {
  std::string name, costs;
  std::chrono::seconds timeout{};
  bool outside = false, idle = false;
  std::vector<char*> command;
  fs::path folder = fs::temp_directory_path();  // a run names another one to its command
};

[[noreturn]] void refuse(const std::string& what) {
  std::cerr << "box: " << what << "; see the top of tests/support/box.cc\n";
  std::exit(64);
}

Options parsed(int argc, char** argv) {
  Options options;
  int at = 1;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    const std::string word = argv[at];
    const auto value = [&] {
      return ++at < argc ? argv[at] : throw std::invalid_argument(word + " lacks its value");
    };
    if (word == "--name")
      options.name = value();
    else if (word == "--timeout")
      options.timeout = std::chrono::seconds(std::stoi(value()));
    else if (word == "--costs")
      options.costs = value();
    else if (word == "--outside")
      options.outside = true;
    else if (word == "--idle")
      options.idle = true;
    else
      throw std::invalid_argument("unknown option " + word);
  }
  options.command.assign(argv + std::min(at + 1, argc), argv + argc);
  if (options.command.empty() || options.timeout.count() <= 0)
    throw std::invalid_argument("no command or no timeout");
  options.command.push_back(nullptr);
  return options;
}

bool written(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

// ---- share ----

bool names(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// Where this process's control group of a hierarchy lies: `controller` is "cpu", or "" for the unified one.
std::optional<fs::path> group_folder(const std::string& controller) {
  std::ifstream mounts("/proc/self/mounts"), groups("/proc/self/cgroup");
  fs::path mounted;
  for (std::string device, folder, type, flags, rest;
       mounts >> device >> folder >> type >> flags && std::getline(mounts, rest);)
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && names(flags, controller))
      mounted = folder;
  for (std::string number, controllers, path; !mounted.empty() && std::getline(groups, number, ':') &&
                                              std::getline(groups, controllers, ':') &&
                                              std::getline(groups, path);)
    if (names(controllers, controller)) return mounted / fs::path(path).relative_path();
  return std::nullopt;
}

// The control groups of one run: of the unified hierarchy, which counts stalls, and where that one has no
// processor controller, of that controller's own.
class Share {
 public:
  explicit Share(bool idle) {
    for (const char* controller : {"", "cpu"}) {
      const auto parent = group_folder(controller);
      if (!parent) continue;
      if (*controller == 0) written(*parent / "cgroup.subtree_control", "+cpu");
      const fs::path folder = *parent / ("dtrun-test-" + std::to_string(getpid()));
      std::error_code error;
      if (!fs::create_directory(folder, error)) continue;
      folders_.push_back(folder);
      if (idle && fs::exists(folder / "cpu.idle")) written(folder / "cpu.idle", "1");
      if (fs::exists(folder / "cpu.pressure"))
        setenv("DTRUN_TEST_PRESSURE", (folder / "cpu.pressure").c_str(), 1);
    }
    if (std::getenv("DTRUN_TEST_PRESSURE") == nullptr && fs::exists("/proc/pressure/cpu"))
      setenv("DTRUN_TEST_PRESSURE", "/proc/pressure/cpu",
             1);  // the whole machine's: bounds are wider than need be
  }
  // All its processes have ended; the kernel may take a moment to forget them.
  ~Share() {
    for (const fs::path& folder : folders_)
      for (int tries = 0; tries < 100 && rmdir(folder.c_str()) != 0 && errno == EBUSY; ++tries) usleep(10000);
  }
  Share(const Share&) = delete;

  void join() const {
    for (const fs::path& folder : folders_) written(folder / "cgroup.procs", "0");
  }

 private:
  std::vector<fs::path> folders_;
};

// ---- world ----

bool bring_loopback_up() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  close(fd);
  return up;
}

constexpr const char* kShortTimes = "short_times";  // a file in the entry's /tmp

void name_folder(const fs::path& folder) {
  setenv("TMPDIR", folder.c_str(), 1);
  setenv("DTRUN_TEST_SHORT_TIMES", (folder / kShortTimes).c_str(), 1);
}

// In the child that becomes the namespaces' first process. `folder`: what /tmp is there.
bool enter_mounts(const fs::path& folder, bool outside) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return false;
  if (mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777") != 0) return false;
  // `ip netns` keeps names there.
  if (!outside && geteuid() == 0 && (fs::exists("/run/netns") || mkdir("/run/netns", 0755) == 0))
    if (mount("netns", "/run/netns", "tmpfs", 0, "mode=755") != 0) return false;
  // A build folder below /tmp stays in sight.
  const bool in_sight = fs::current_path().string().starts_with("/tmp/");
  if (!in_sight && mount(folder.c_str(), "/tmp", nullptr, MS_BIND, nullptr) == 0) name_folder("/tmp");
  return outside || bring_loopback_up();
}

int namespaces(bool outside) {
  return CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | (outside ? 0 : CLONE_NEWNET);
}

bool unshared(bool outside) {
  if (geteuid() == 0) return unshare(namespaces(outside)) == 0;
  const std::string ids = std::to_string(geteuid()) + " " + std::to_string(geteuid()) + " 1";
  const std::string groups = std::to_string(getegid()) + " " + std::to_string(getegid()) + " 1";
  return unshare(CLONE_NEWUSER | namespaces(outside)) == 0 && written("/proc/self/setgroups", "deny") &&
         written("/proc/self/uid_map", ids) && written("/proc/self/gid_map", groups);
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The namespaces' first process: starts the command, buries whatever dies, and ends with the command.
[[noreturn]] void be_init(const std::vector<char*>& command) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    execvp(command[0], command.data());
    std::cerr << "box: " << command[0] << ": " << std::strerror(errno) << "\n";
    _exit(127);
  }
  for (int status = 0;;) {
    const pid_t dead = wait(&status);
    if (dead == child || (dead < 0 && errno != EINTR)) _exit(code_of(status));
  }
}

// ---- one run ----

struct Ran {
  int code = 0;
  double cpu = 0;          // seconds
  Micros shortest{};       // of the times that the entry set short; 0: none
  Micros longest_stall{};  // within such a time
};

Micros shortest_in(const fs::path& file) {
  Micros shortest{};
  std::ifstream lines(file);
  for (std::int64_t time = 0; lines >> time;)
    if (shortest.count() == 0 || milliseconds(time) < shortest) shortest = milliseconds(time);
  return shortest;
}

struct Sample {
  std::chrono::nanoseconds at;
  Micros stalled;
};

// The most that something was stalled within any stretch of a length.
Micros longest_stall(const std::vector<Sample>& samples, Micros length) {
  Micros longest{};
  for (std::size_t last = 0, first = 0; last < samples.size(); ++last) {
    while (samples[last].at - samples[first].at > length + kSample) ++first;
    longest = std::max(longest, samples[last].stalled - samples[first].stalled);
  }
  return longest;
}

volatile sig_atomic_t interrupted = 0;  // by this signal

// Looks at the stalls until the process ends; false if the timeout, in fair time, was over first, or at a
// signal.
bool watched_to_the_end(int pidfd, std::chrono::seconds timeout, std::vector<Sample>& samples) {
  const dtrun::test::Stopwatch watch;
  pollfd end{.fd = pidfd, .events = POLLIN, .revents = 0};
  for (int ended = 0; ended <= 0;) {
    if (interrupted != 0 || watch.fair() > timeout) return false;
    samples.push_back({watch.wall(), dtrun::test::stalled()});
    ended = poll(&end, 1, kSample.count());
  }
  samples.push_back({watch.wall(), dtrun::test::stalled()});
  return true;
}

// What the kernel knows of each process of the group that did not end in time.
void tell_processes() {
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream stat(entry->path() / "cmdline"), group(entry->path() / "cgroup"),
        wchan(entry->path() / "wchan");
    const std::string groups{std::istreambuf_iterator<char>(group), {}};
    if (groups.find("dtrun-test-" + std::to_string(getpid()) + "\n") == std::string::npos) continue;
    std::string words{std::istreambuf_iterator<char>(stat), {}}, where;
    std::getline(wchan, where);
    std::replace(words.begin(), words.end(), '\0', ' ');
    std::cerr << "  " << entry->path().filename().string() << " [" << where << "] " << words.substr(0, 200)
              << "\n";
  }
}

Ran run_once(const Options& options, bool world) {
  const Share share(options.idle);
  std::string pattern = (options.folder / "dtrun-box-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) refuse("cannot make " + pattern);
  const fs::path tmp = pattern;
  fs::permissions(tmp, fs::perms::all | fs::perms::sticky_bit);
  name_folder(tmp);

  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    share.join();
    if (!world) be_init(options.command);
    if (!unshared(options.outside)) _exit(kNoWorld);
    const pid_t init = fork();
    if (init == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!enter_mounts(tmp, options.outside)) _exit(kNoWorld);
      be_init(options.command);
    }
    int status = 0;
    while (waitpid(init, &status, 0) < 0 && errno == EINTR) {
    }
    _exit(code_of(status));
  }
  Ran ran;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  std::vector<Sample> samples;
  const bool ended = watched_to_the_end(pidfd, options.timeout, samples);
  close(pidfd);
  if (!ended && interrupted == 0) {
    std::cerr << "box: " << options.name << " did not end within " << options.timeout.count()
              << " s of fair time:\n";
    tell_processes();
  }
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  ran.code = ended ? code_of(status) : interrupted != 0 ? 128 + interrupted : kTimedOut;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  ran.cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
  ran.shortest = shortest_in(tmp / kShortTimes);
  ran.longest_stall = longest_stall(samples, ran.shortest);
  std::error_code error;
  fs::remove_all(tmp, error);
  return ran;
}

bool says_nothing(const Ran& ran) {
  return interrupted == 0 && ran.code != 0 && ran.code != kSkipped && ran.shortest.count() > 0 &&
         4 * ran.longest_stall > ran.shortest;
}

int run(const Options& options) {
  const dtrun::test::Stopwatch watch;
  bool world = true;
  double cpu = 0;
  int inconclusive = 0;
  Ran ran;
  for (;;) {
    ran = run_once(options, world);
    cpu += ran.cpu;
    if (world && ran.code == kNoWorld && geteuid() != 0) {
      world = false;
      continue;
    }
    if (!says_nothing(ran) || inconclusive + 1 == kRuns) break;
    ++inconclusive;
    std::cout << "box: inconclusive: it failed (" << ran.code << "), but of a time of "
              << ran.shortest.count() / 1000 << " ms that it sets, something was stalled for "
              << ran.longest_stall.count() / 1000 << "; once more\n";
  }
  if (!options.costs.empty()) {
    std::ostringstream line;
    line << options.name << " " << cpu << " " << static_cast<double>(watch.wall().count()) / 1e9 << " "
         << inconclusive << "\n";
    std::ofstream(options.costs, std::ios::app) << line.str();
  }
  return ran.code;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, [](int caught) { interrupted = caught; });
  try {
    return run(parsed(argc, argv));
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}
