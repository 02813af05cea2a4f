#include "agent/health/stack_dump.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "agent/core/utf8.h"
#include "agent/health/group_usage.h"
#include "agent/process/spawn.h"
#include "agent/system/pidfd.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// A debugger stops the process that it looks at and may take long over a big one.
constexpr auto kAllTools = 20s;
constexpr auto kOneTool = 10s;
// Data loaders and the like would fill the file; the worker itself comes first.
constexpr std::size_t kToolProcesses = 4, kListedProcesses = 32;

constexpr char kInKernel[] = "in the kernel:";  // the last part of a dump

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string line_in(const std::string& path) {
  const std::string text = text_in(path);
  return printable(text.substr(0, text.find('\n')));
}

// "State:	S (sleeping)" of /proc/…/status as "S (sleeping)".
std::string status_field(const std::string& status, const std::string& name) {
  const std::size_t at = status.find(name + ":\t");
  if (at == std::string::npos) return "?";
  const std::size_t value = at + name.size() + 2;
  return status.substr(value, status.find('\n', value) - value);
}

std::vector<std::string> threads_of(const std::string& process) {
  std::vector<std::string> threads;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(process + "/task", error)) threads.push_back(entry.path());
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string thread_state(const std::string& thread) {
  const std::string waits_in = line_in(thread + "/wchan"), call = line_in(thread + "/syscall");
  std::string text = "  thread " + fs::path(thread).filename().string() + " (" + line_in(thread + "/comm") +
                     "): " + status_field(text_in(thread + "/status"), "State");
  if (!waits_in.empty() && waits_in != "0") text += ", in " + waits_in;
  const std::string number = call.substr(0, call.find(' '));
  if (!number.empty() && number != "running") text += ", system call " + number;
  return text + "\n";
}

std::optional<std::string> in_path(const std::string& program, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (!entry.starts_with("PATH=")) continue;
    std::istringstream folders(entry.substr(5));
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string path = folder + "/" + program;
      if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return std::nullopt;
}

// The group's processes, its leader first.
std::vector<pid_t> members_of(pid_t group) {
  std::vector<pid_t> pids;
  const GroupUsage usage = usage_of_groups({group})[group];
  for (const ProcessStat& member : usage.members) {
    if (member.state != 'Z') pids.push_back(member.pid);
  }
  std::sort(pids.begin(), pids.end(), [&](pid_t a, pid_t b) { return (a == group) > (b == group) || a < b; });
  if (pids.size() > kListedProcesses) pids.resize(kListedProcesses);
  return pids;
}

bool is_python(pid_t pid) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
  return program.filename().string().starts_with("python");
}

std::deque<std::vector<std::string>> tools_for(std::vector<pid_t> pids,
                                               const std::vector<std::string>& environment) {
  std::deque<std::vector<std::string>> tools;
  if (pids.size() > kToolProcesses) pids.resize(kToolProcesses);
  const auto py_spy = in_path("py-spy", environment), gdb = in_path("gdb", environment);
  for (pid_t pid : pids) {
    const std::string number = std::to_string(pid);
    if (py_spy && is_python(pid)) tools.push_back({*py_spy, "dump", "--pid", number});
    if (gdb) {
      tools.push_back({*gdb, "-nx", "-batch", "-iex", "set auto-load python-scripts off", "-iex",
                       "set auto-load gdb-scripts off", "-iex", "set print frame-arguments none", "-iex",
                       "set width 0", "-p", number, "-ex", "thread apply all backtrace 40"});
    }
  }
  return tools;
}

// Debug symbols are not fetched over the network while a job waits.
std::vector<std::string> tool_environment(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& entry) { return entry.starts_with("DEBUGINFOD_URLS="); });
  environment.push_back("DEBUGINFOD_URLS=");
  return environment;
}

}  // namespace

std::string thread_states(const std::vector<pid_t>& processes, bool kernel_stacks) {
  std::string text;
  for (pid_t pid : processes) {
    const std::string process = "/proc/" + std::to_string(pid);
    text += "process " + std::to_string(pid) + " (" + line_in(process + "/comm") + ")\n";
    for (const std::string& thread : threads_of(process)) {
      text += thread_state(thread);
      if (kernel_stacks) text += text_in(thread + "/stack");
    }
  }
  return text;
}

StackDump::StackDump(Loop& loop, pid_t group, fs::path file, const std::vector<std::string>& environment,
                     std::function<void()> done)
    : loop_(loop),
      group_(group),
      file_(std::move(file)),
      environment_(tool_environment(environment)),
      done_(std::move(done)),
      deadline_(Loop::Clock::now() + kAllTools) {
  const std::vector<pid_t> pids = members_of(group_);
  std::error_code ignored;
  fs::remove(file_, ignored);
  append(thread_states(pids, false));
  if (!file_.empty()) tools_ = tools_for(pids, environment_);
  // Never calls back from within the constructor.
  timer_ = loop_.call_at(Loop::Clock::now(), [this] {
    timer_.reset();
    next_tool();
  });
}

StackDump::~StackDump() { stop_tool(); }

void StackDump::next_tool() {
  if (tools_.empty() || Loop::Clock::now() >= deadline_) {
    append("\n" + std::string(kInKernel) + "\n" + thread_states(members_of(group_), true));
    return done_();
  }
  const std::vector<std::string> argv = std::move(tools_.front());
  tools_.pop_front();
  run(argv);
}

void StackDump::run(const std::vector<std::string>& argv) {
  append("\n" + argv[0] + ":\n");
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor out(open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  auto pid = spawn({argv, environment_, null.get(), out.get(), out.get(), -1, {}, {}});
  if (pid.ok()) {
    handle_.reset(open_pidfd(pid.value()));
  }
  if (!handle_.open()) {
    append(pid.ok() ? "cannot be waited for on this kernel\n" : pid.status().message() + "\n");
    return tool_ended();
  }
  loop_.watch(handle_.get(), EPOLLIN, [this](std::uint32_t) { tool_ended(); });
  timer_ = loop_.call_at(std::min(deadline_, Loop::Clock::now() + kOneTool), [this] {
    timer_.reset();
    append("\n(took too long)\n");
    tool_ended();
  });
}

void StackDump::tool_ended() {
  stop_tool();
  next_tool();
}

void StackDump::stop_tool() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  if (handle_.open()) {
    loop_.forget(handle_.get());
    signal_pidfd(handle_.get(), SIGKILL);
    handle_.reset();
  }
}

void StackDump::append(const std::string& text) const {
  std::ofstream(file_, std::ios::app | std::ios::binary) << text;
}

std::vector<std::string> StackDump::in_short(const fs::path& file) {
  static constexpr std::size_t kLines = 24, kLength = 160;
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; lines.size() < kLines && std::getline(in, line) && line != kInKernel;) {
    // Only threads and frames; tools print more.
    for (const char* start : {"process ", "  thread ", "Thread ", "#", "    "}) {
      if (line.starts_with(start)) lines.push_back(printable(line.substr(0, kLength)));
    }
  }
  return lines;
}

}  // namespace dtrun::agent
