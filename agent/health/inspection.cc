// The order of things: the kernel's word on every worker first, since a tool stops the process that it looks
// at; then py-spy or gdb, two at a time, the workers' main processes before their others; then whether each
// computed meanwhile. The deadline ends the tools that are at work.
#include "agent/health/inspection.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "agent/health/group_usage.h"
#include "agent/health/kernel_wait.h"
#include "agent/process/spawn.h"
#include "agent/system/pidfd.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kOneTool = 10s;
// Tools of more workers at once would only slow each other down.
constexpr std::size_t kAtOnce = 2;
// Data loaders and other children would fill the file; the worker itself comes first.
constexpr std::size_t kToolProcesses = 4, kListedProcesses = 32;
// A worker's CPU time is watched for at least this long; a tenth of a core counts as a computation.
constexpr auto kWatch = 300ms;
constexpr std::int64_t kBusyShare = 10, kTickMs = 10;
// gdb reads a library's symbols at some 100 MB/s, and torch's are gigabytes. Above this only a few are read.
constexpr std::uintmax_t kReadAll = 100'000'000;

std::string in_path(const std::string& program, const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) {
    if (!entry.starts_with("PATH=")) continue;
    for (const std::string& folder : split(entry.substr(5), ':')) {
      std::string path = folder + "/" + program;
      if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "";
}

std::string first_word(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string word;
  std::getline(file, word, '\0');
  return word;
}

// py-spy is often installed where the worker's Python is, an environment that need not be active here.
std::string beside_program(const std::string& tool, pid_t pid) {
  const fs::path program = first_word(pid);
  const std::string path = program.parent_path() / tool;
  return program.is_absolute() && access(path.c_str(), X_OK) == 0 ? path : std::string();
}

bool is_python(pid_t pid) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
  return program.filename().string().starts_with("python");
}

// The group's processes, its leader first.
std::vector<ProcessStat> members_of(pid_t group) {
  std::vector<ProcessStat> members = usage_of_groups({group})[group].members;
  std::erase_if(members, [](const ProcessStat& member) { return member.state == 'Z'; });
  std::sort(members.begin(), members.end(), [&](const ProcessStat& a, const ProcessStat& b) {
    return (a.pid == group) > (b.pid == group) || (((a.pid == group) == (b.pid == group)) && a.pid < b.pid);
  });
  if (members.size() > kListedProcesses) members.resize(kListedProcesses);
  return members;
}

// A shell or another wrapper that waits for its child tells nothing; the child does.
pid_t telling(const std::vector<ProcessStat>& members, pid_t group) {
  pid_t pid = group;
  for (std::size_t depth = 0; depth < members.size(); ++depth) {
    const std::string call = kernel_wait(pid).call;
    const auto child =
        std::find_if(members.begin(), members.end(), [&](const ProcessStat& m) { return m.parent == pid; });
    const bool waits = call == "wait4" || call == "waitid" || call == "rt_sigsuspend";
    if (is_python(pid) || !waits || child == members.end()) break;
    pid = child->pid;
  }
  return pid;
}

std::uintmax_t library_bytes(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::set<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at != std::string::npos && line.find(".so", at) != std::string::npos) files.insert(line.substr(at));
  }
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (const std::string& file : files) {
    const std::uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

// Debug symbols are not fetched over the network while a job waits.
std::vector<std::string> tool_environment(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& entry) { return entry.starts_with("DEBUGINFOD_URLS="); });
  environment.push_back("DEBUGINFOD_URLS=");
  return environment;
}

void append(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::app | std::ios::binary) << text;
}

std::string text_from(const fs::path& file, std::uintmax_t begin) {
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(begin));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Inspection::Inspection(Loop& loop, const std::vector<InspectedWorker>& workers,
                       std::chrono::milliseconds limit, Tools tools, std::vector<std::string> environment,
                       std::function<void()> done)
    : loop_(loop),
      tools_(tools),
      environment_(tool_environment(std::move(environment))),
      done_(std::move(done)),
      begin_(Loop::Clock::now()),
      deadline_(begin_ + limit),
      py_spy_(in_path("py-spy", environment_)),
      gdb_(tools == Tools::kAll ? in_path("gdb", environment_) : "") {
  for (const InspectedWorker& worker : workers) first_inspection(worker);
  plan_tasks();
  timer_.set(begin_, [this] { go_on(); });
}

Inspection::~Inspection() {
  for (Running& running : running_) stop(running);
}

// Reads the kernel's view of each worker before a tool stops the first of them.
void Inspection::first_inspection(const InspectedWorker& worker) {
  const std::vector<ProcessStat> members = members_of(worker.group);
  Seen& seen = seen_.emplace_back();
  seen.worker = worker;
  seen.pid = telling(members, worker.group);
  seen.python = is_python(seen.pid);
  seen.wait = kernel_wait(seen.pid);
  seen.ticks = cpu_ticks(seen.pid);
  std::error_code ignored;
  fs::remove(worker.file, ignored);
  std::vector<pid_t> pids;
  for (const ProcessStat& member : members) pids.push_back(member.pid);
  append(worker.file, thread_states(pids));
  if (py_spy_.empty() && seen.python) py_spy_ = beside_program("py-spy", seen.pid);
}

// Every worker's main process comes before any worker's others.
void Inspection::plan_tasks() {
  for (Seen& seen : seen_) add_task(seen, seen.pid);
  for (Seen& seen : seen_) {
    std::size_t processes = 1;
    for (const ProcessStat& member : members_of(seen.worker.group)) {
      if (member.pid != seen.pid && ++processes <= kToolProcesses) add_task(seen, member.pid);
    }
  }
}

void Inspection::add_task(Seen& seen, pid_t pid) {
  if (!py_spy_.empty() && is_python(pid))
    tasks_.push_back({&seen, pid, Kind::kPySpy});
  else if (!gdb_.empty())
    tasks_.push_back({&seen, pid, Kind::kGdb});
}

std::vector<std::string> Inspection::command(const Task& task) const {
  const std::string number = std::to_string(task.pid);
  if (task.kind == Kind::kPySpy && tools_ == Tools::kHarmless)
    return {py_spy_, "dump", "--nonblocking", "--full-filenames", "--pid", number};
  if (task.kind == Kind::kPySpy) return {py_spy_, "dump", "--full-filenames", "--pid", number};
  std::vector<std::string> words{
      gdb_,   "-nx",        "-batch", "-iex", "set auto-load off", "-iex", "set print frame-arguments none",
      "-iex", "set width 0"};
  const bool all = library_bytes(task.pid) <= kReadAll;
  if (!all) words.insert(words.end(), {"-iex", "set auto-solib-add off"});
  words.insert(words.end(), {"-p", number});
  if (!all) words.insert(words.end(), {"-ex", "sharedlibrary libpython", "-ex", "sharedlibrary libstdc"});
  words.insert(words.end(), {"-ex", "thread apply all backtrace 40"});
  return words;
}

void Inspection::go_on() {
  const auto now = Loop::Clock::now();
  if (now >= deadline_) return finish();
  while (!tasks_.empty() && running_.size() < kAtOnce) {
    const Task task = tasks_.front();
    tasks_.pop_front();
    run(task);
  }
  if (tasks_.empty() && running_.empty() && now >= begin_ + kWatch) return finish();
  const auto next = tasks_.empty() && running_.empty() ? std::min(begin_ + kWatch, deadline_) : deadline_;
  timer_.set(next, [this] { go_on(); });
}

void Inspection::run(const Task& task) {
  const std::vector<std::string> argv = command(task);
  const fs::path& file = task.seen->worker.file;
  append(file, "\n" + argv[0] + " of process " + std::to_string(task.pid) + ":\n");
  std::error_code error;
  const std::uintmax_t begin = fs::file_size(file, error);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor out(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  auto pid = spawn({.argv = argv,
                    .environment = environment_,
                    .stdin_fd = null.get(),
                    .stdout_fd = out.get(),
                    .stderr_fd = out.get(),
                    .cpus = {},
                    .limit_tag = {}});
  Descriptor handle(pid.ok() ? open_pidfd(pid.value()) : -1);
  if (!handle.open()) {
    append(file, pid.ok() ? "cannot be waited for on this kernel\n" : pid.status().message() + "\n");
    return;
  }
  running_.push_back({task, error ? 0 : begin, std::move(handle), std::nullopt});
  Running* running = &running_.back();
  loop_.watch(running->handle.get(), EPOLLIN, [this, running](std::uint32_t) { ended(running); });
  running->timer = loop_.call_at(Loop::Clock::now() + kOneTool, [this, running] {
    running->timer.reset();
    append(running->task.seen->worker.file, "\n(took too long)\n");
    ended(running);
  });
}

void Inspection::ended(Running* running) {
  stop(*running);
  take_frames(*running);
  running_.remove_if([&](const Running& one) { return &one == running; });
  go_on();
}

void Inspection::stop(Running& running) {
  if (running.timer) loop_.cancel(*running.timer);
  running.timer.reset();
  if (!running.handle.open()) return;
  loop_.forget(running.handle.get());
  signal_pidfd(running.handle.get(), SIGKILL);
  running.handle.reset();
}

void Inspection::take_frames(const Running& running) {
  const Task& task = running.task;
  Seen& seen = *task.seen;
  const std::string text = text_from(seen.worker.file, running.begin);
  if (text.find("ermission denied") != text.npos || text.find("ermission Denied") != text.npos ||
      text.find("Operation not permitted") != text.npos)
    refused_ = true;
  if (task.pid != seen.pid) return;
  if (task.kind == Kind::kGdb) {
    seen.gdb = frames_of_gdb(text, task.pid);
    return;
  }
  seen.py_spy = frames_of_py_spy(text);
  if (seen.py_spy.empty() && !gdb_.empty()) tasks_.push_front({task.seen, task.pid, Kind::kGdb});
}

void Inspection::finish() {
  timer_.cancel();
  tasks_.clear();
  for (Running& running : running_) {
    append(running.task.seen->worker.file, "\n(took too long)\n");
    stop(running);
    take_frames(running);
  }
  tasks_.clear();
  running_.clear();
  const std::int64_t watched =
      std::chrono::duration_cast<std::chrono::milliseconds>(Loop::Clock::now() - begin_).count();
  for (Seen& seen : seen_) {
    const std::int64_t used = (cpu_ticks(seen.pid) - seen.ticks) * kTickMs;
    if (seen.wait.state == 'R') seen.wait = kernel_wait(seen.pid);  // it was on its way
    seen.wait.computes = used * kBusyShare >= watched;
  }
  done_();
}

StackLocation Inspection::stack_location(int local_rank) const {
  for (const Seen& seen : seen_)
    if (seen.worker.local_rank == local_rank) return stack_location_of(seen.wait, seen.py_spy, seen.gdb);
  return {};
}

std::string Inspection::advice() const {
  const bool python = std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) { return seen.python; });
  const bool blind = std::any_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
    return seen.python ? seen.py_spy.empty() : seen.gdb.empty();
  });
  if (!blind) return "";
  if (refused_)
    return "stacks may not be read here: that needs root, CAP_SYS_PTRACE or kernel.yama.ptrace_scope=0";
  if (python && py_spy_.empty())
    return "py-spy is not installed: with it (pip install py-spy) a hang shows lines of Python";
  if (!python && gdb_.empty()) return "gdb is not installed: with it a hang shows stacks";
  return "";
}

}  // namespace dtrun::agent
