#include "agent/health/kernel_wait.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "agent/health/group_usage.h"
#include "proto/base/text_in.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {
namespace {

namespace fs = std::filesystem;

struct NamedCall {
  long number;
  const char* name;
};

// System calls in which a thread may wait for long. Not every architecture has all of them.
constexpr NamedCall kCalls[] = {
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_open, "open"},
    {SYS_stat, "stat"},
    {SYS_pause, "pause"},
    {SYS_getdents, "getdents"},
#endif
#ifdef SYS_futex_waitv
    {SYS_futex_waitv, "futex_waitv"},
#endif
#ifdef SYS_newfstatat
    {SYS_newfstatat, "newfstatat"},
#endif
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_connect, "connect"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_pread64, "pread64"},
    {SYS_write, "write"},
    {SYS_writev, "writev"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_openat, "openat"},
    {SYS_close, "close"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_getdents64, "getdents64"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_ioctl, "ioctl"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
};

std::string proc_line(const std::string& path) {
  const std::string text = text_in(path);
  return printable(text.substr(0, text.find('\n')));
}

// The call and its first argument in "202 0x36578008 0x189 …"; "running" and "-1 …" have none.
struct CallLine {
  std::string name;
  std::uint64_t argument = 0;
};

CallLine call_in(const std::string& line) {
  char* end = nullptr;
  const long number = std::strtol(line.c_str(), &end, 10);
  if (end == line.c_str() || number < 0) return {};
  const auto* known = std::find_if(std::begin(kCalls), std::end(kCalls),
                                   [&](const NamedCall& call) { return call.number == number; });
  return {known != std::end(kCalls) ? known->name : "system call " + std::to_string(number),
          std::strtoull(end, nullptr, 16)};
}

// Calls whose first argument is a descriptor that is worth a name.
bool on_descriptor(const std::string& call) {
  for (const char* one : {"read", "readv", "pread64", "write", "writev", "pwrite64", "fsync", "fdatasync"})
    if (call == one) return true;
  return false;
}

// "State:	S (sleeping)" of /proc/…/status as "S (sleeping)".
std::string state_in(const std::string& status) {
  const std::string name = "State:\t";
  const std::size_t at = status.find(name);
  if (at == std::string::npos) return "?";
  const std::size_t value = at + name.size();
  return status.substr(value, status.find('\n', value) - value);
}

std::string channel_of(const std::string& thread) {
  const std::string channel = proc_line(thread + "/wchan");
  return channel == "0" ? "" : channel;
}

std::vector<std::string> threads_of(const std::string& process) {
  std::vector<std::string> threads;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(process + "/task", error)) threads.push_back(entry.path());
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string thread_state(const std::string& thread) {
  const std::string channel = channel_of(thread), call = call_in(proc_line(thread + "/syscall")).name;
  std::string text = "  thread " + fs::path(thread).filename().string() + " (" + proc_line(thread + "/comm") +
                     "): " + state_in(text_in(thread + "/status"));
  if (!call.empty()) text += ", " + call;
  if (!channel.empty()) text += ", in " + channel;
  return text + "\n";
}

KernelWait wait_of(const std::string& process, const std::string& thread) {
  KernelWait wait;
  wait.state = state_in(text_in(thread + "/status"))[0];
  wait.channel = channel_of(thread);
  const CallLine call = call_in(proc_line(thread + "/syscall"));
  wait.call = call.name;
  if (on_descriptor(call.name)) {
    std::error_code error;
    wait.file = fs::read_symlink(process + "/fd/" + std::to_string(call.argument), error).string();
  }
  return wait;
}

}  // namespace

KernelWait kernel_wait(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  return wait_of(process, process + "/task/" + std::to_string(pid));
}

KernelWait kernel_wait_of_any(pid_t pid) {
  KernelWait main = kernel_wait(pid);
  const std::string process = "/proc/" + std::to_string(pid);
  if (main.state == 'T' || main.state == 'D' || main.file.starts_with('/')) return main;
  for (const std::string& thread : threads_of(process)) {
    KernelWait wait = wait_of(process, thread);
    if (wait.state == 'D' || wait.file.starts_with('/')) return wait;
  }
  return main;
}

std::string thread_states(const std::vector<pid_t>& processes) {
  std::string text;
  for (pid_t pid : processes) {
    const std::string process = "/proc/" + std::to_string(pid);
    text += "process " + std::to_string(pid) + " (" + proc_line(process + "/comm") + ")\n";
    for (const std::string& thread : threads_of(process))
      text += thread_state(thread) + text_in(thread + "/stack");
  }
  return text;
}

std::int64_t cpu_ticks(pid_t pid) {
  const auto stat = parse_stat(text_in("/proc/" + std::to_string(pid) + "/stat"));
  return stat ? stat->cpu_ticks : 0;
}

}  // namespace dtrun::agent
