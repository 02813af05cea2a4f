#include "agent/core/stack_location.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>

#include "proto/core/text.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kLongest = 160;  // of a place, in bytes

// ---- the kernel's word

struct SystemCall {
  const char* name;
  const char* does;  // in one word
  Activity activity;
};

// Calls in which a worker that hangs is found. A wait for a lock, a condition or a socket may be for a peer.
constexpr SystemCall kSystemCalls[] = {
    {"nanosleep", "sleep", Activity::kElsewhere},
    {"clock_nanosleep", "sleep", Activity::kElsewhere},
    {"futex", "wait", Activity::kWaits},
    {"futex_waitv", "wait", Activity::kWaits},
    {"poll", "wait", Activity::kWaits},
    {"ppoll", "wait", Activity::kWaits},
    {"select", "wait", Activity::kWaits},
    {"pselect6", "wait", Activity::kWaits},
    {"epoll_wait", "wait", Activity::kWaits},
    {"epoll_pwait", "wait", Activity::kWaits},
    {"epoll_pwait2", "wait", Activity::kWaits},
    {"recvfrom", "receive", Activity::kWaits},
    {"recvmsg", "receive", Activity::kWaits},
    {"sendto", "send", Activity::kWaits},
    {"sendmsg", "send", Activity::kWaits},
    {"accept", "accept", Activity::kWaits},
    {"accept4", "accept", Activity::kWaits},
    {"connect", "connect", Activity::kWaits},
    {"read", "read", Activity::kElsewhere},
    {"readv", "read", Activity::kElsewhere},
    {"pread64", "read", Activity::kElsewhere},
    {"write", "write", Activity::kElsewhere},
    {"writev", "write", Activity::kElsewhere},
    {"pwrite64", "write", Activity::kElsewhere},
    {"wait4", "wait for a child", Activity::kElsewhere},
    {"waitid", "wait for a child", Activity::kElsewhere},
    {"flock", "wait for a file lock", Activity::kElsewhere},
    {"fcntl", "wait for a file lock", Activity::kElsewhere},
    {"pause", "wait for a signal", Activity::kElsewhere},
    {"rt_sigtimedwait", "wait for a signal", Activity::kElsewhere},
    {"rt_sigsuspend", "wait for a signal", Activity::kElsewhere},
};

struct WaitText {
  std::string does;    // "sleep", "read of /data/x"
  std::string detail;  // "clock_nanosleep"; may be empty
  Activity activity = Activity::kWaits;
};

bool on_file(const std::string& does) { return does == "read" || does == "write"; }

// Numbers of sockets and pipes differ from rank to rank, their kind does not.
std::string kind_of(const std::string& file) {
  if (file.starts_with("socket:")) return "a socket";
  if (file.starts_with("pipe:")) return "a pipe";
  if (file.starts_with("/dev/pts/") || file.starts_with("/dev/tty")) return "the terminal";
  return file;
}

WaitText wait_of(const KernelWait& kernel) {
  if (kernel.state == 'T') return {"stopped", "by a signal", Activity::kElsewhere};
  if (kernel.state == 't') return {"stopped", "by a debugger", Activity::kElsewhere};
  if (kernel.computes || kernel.state == 'R') return {"computing", "", Activity::kComputes};
  const auto call = std::find_if(std::begin(kSystemCalls), std::end(kSystemCalls),
                                 [&](const SystemCall& known) { return kernel.call == known.name; });
  const std::string place = !kernel.call.empty() ? kernel.call : kernel.channel;
  // Uninterruptible: a disk, or a file system over the network that does not answer.
  if (kernel.state == 'D')
    return {"wait for a disk or file system", kernel.file.empty() ? place : kernel.file,
            Activity::kElsewhere};
  if (call == std::end(kSystemCalls)) return {"wait", place, Activity::kWaits};
  if (!on_file(call->does) || kernel.file.empty()) return {call->does, call->name, call->activity};
  const bool to_others = kernel.file.starts_with("socket:") || kernel.file.starts_with("anon_inode:");
  return {std::string(call->does) + " of " + kind_of(kernel.file), "",
          to_others ? Activity::kWaits : Activity::kElsewhere};
}

// ---- what tools print

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// "    load (data/loader.py:41)"; a built-in function's has no line.
std::optional<Frame> py_spy_frame(const std::string& line) {
  if (!line.starts_with("    ") || !line.ends_with(")")) return std::nullopt;
  const std::size_t open = line.rfind(" (");
  if (open == std::string::npos || open < 4) return std::nullopt;
  const std::string place = line.substr(open + 2, line.size() - open - 3);
  const std::size_t colon = place.rfind(':');
  Frame frame{.function = line.substr(4, open - 4), .file = place, .line = ""};
  if (colon != std::string::npos && all_digits(std::string_view(place).substr(colon + 1))) {
    frame.file = place.substr(0, colon);
    frame.line = place.substr(colon + 1);
  }
  return frame;
}

// "#3  0x00007f… in c10d::Work::wait(…) () from /…/libtorch_cpu.so", "#0  f (x=…) at a.c:3".
std::optional<Frame> gdb_frame(const std::string& line) {
  if (!line.starts_with("#")) return std::nullopt;
  std::size_t at = line.find_first_of(' ');
  if (at == std::string::npos || !all_digits(std::string_view(line).substr(1, at - 1))) return std::nullopt;
  at = line.find_first_not_of(' ', at);
  if (at == std::string::npos) return std::nullopt;
  if (line.compare(at, 2, "0x") == 0) {
    const std::size_t in = line.find(" in ", at);
    if (in == std::string::npos) return std::nullopt;
    at = in + 4;
  }
  Frame frame;
  frame.function = line.substr(at, line.find_first_of("(<", at) - at);
  while (frame.function.ends_with(' ')) frame.function.pop_back();
  const std::size_t from = line.rfind(" from "), source = line.rfind(" at ");
  if (from != std::string::npos)
    frame.file = line.substr(from + 6);
  else if (source != std::string::npos)
    frame.file = line.substr(source + 4);
  return frame;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }
bool has_one_of(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return has(text, part); });
}

std::string last_part(const std::string& text, char separator) {
  const std::size_t at = text.rfind(separator);
  return at == std::string::npos ? text : text.substr(at + 1);
}

// `part`, and no digit after it.
bool names(const std::string& line, const std::string& part) {
  const std::size_t at = line.find(part);
  return at != std::string::npos && !std::isdigit(static_cast<unsigned char>(line[at + part.size()]));
}

// ---- Python

// Not the user's own: Python's, installed packages', or made at run time.
bool is_library(const std::string& file) {
  return has_one_of(file, {"/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python"}) ||
         file.starts_with("<");
}

// Frames between a call and its target: decorators, and methods that only Python calls.
bool is_between(const std::string& function) {
  return has(function, "<locals>") || has(function, "<lambda>") || last_part(function, '.').starts_with("_");
}

// Calls in the first kind of files wait for peers; in the second, for the worker's own processes, or a
// server.
bool is_collective(const std::string& file) {
  return has_one_of(file, {"torch/distributed/", "torch/nn/parallel/distributed", "/horovod/", "/mpi4py/"});
}
bool is_own_affair(const std::string& file) {
  return has_one_of(file, {"/socket.py", "/ssl.py", "/subprocess.py", "/queue.py", "/multiprocessing/",
                           "/torch/utils/data/"});
}

StackLocation python_standing(const WaitText& wait, const std::vector<Frame>& frames) {
  const auto own =
      std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return !is_library(f.file); });
  const auto user = own != frames.end() ? own : std::prev(frames.end());
  // From the user's line inwards to the first function whose name tells its purpose.
  std::string does = user == frames.begin() ? wait.does : last_part(std::prev(user)->function, '.');
  Activity activity = wait.activity;
  for (auto called = user; called != frames.begin();) {
    --called;
    if (is_between(called->function)) continue;
    does = called->function;
    break;
  }
  if (std::any_of(frames.begin(), user, [](const Frame& f) { return is_collective(f.file); })) {
    if (activity != Activity::kComputes) activity = Activity::kWaitsForPeers;
  } else if (std::any_of(frames.begin(), user, [](const Frame& f) { return is_own_affair(f.file); })) {
    if (activity == Activity::kWaits) activity = Activity::kElsewhere;
  }
  if (wait.activity == Activity::kComputes && user != frames.begin()) does = "computing in " + does;
  return {does + " at " + last_part(user->file, '/') + (user->line.empty() ? "" : ":" + user->line),
          activity};
}

// ---- other programs

// The C library's and the runtime's part of a wait, the same for all.
bool is_plumbing(const Frame& frame) {
  const std::string& f = frame.function;
  return has_one_of(frame.file, {"/libc.so", "/libpthread.so", "/libstdc++.so", "/include/c++/", "./nptl/",
                                 "./io/", "../sysdeps/", "./misc/", "./socket/"}) ||
         f.starts_with("__") || f.starts_with("std::");
}

// Python's own loop: which of the user's functions it runs cannot be seen.
bool is_interpreter(const Frame& frame) {
  return has_one_of(frame.function, {"PyEval", "PyObject", "Py_Run", "PyRun", "cfunction_", "pymain"});
}

// Files of NCCL, gloo, MPI, PyTorch, and of the built-in trainer (worker/collective/).
bool is_exchange(const std::string& place) {
  return has_one_of(place, {"c10d::", "gloo::", "libgloo", "nccl", "MPI_", "PMPI_", "libmpi",
                            "dtrun::worker::SharedMemoryTransport::", "sleep_for_news"});
}

StackLocation native_standing(const WaitText& wait, const std::vector<Frame>& frames) {
  const std::string plain = wait.does + (wait.detail.empty() ? "" : " (" + wait.detail + ")");
  for (const Frame& frame : frames) {
    if (is_interpreter(frame)) break;
    if (is_plumbing(frame) || (frame.function == "??" && frame.file.empty())) continue;
    const bool named = frame.function != "??";
    const std::string place = named ? frame.function : last_part(frame.file, '/');
    const bool peers = is_exchange(place) && wait.activity == Activity::kWaits;
    return {wait.does + " in " + place, peers ? Activity::kWaitsForPeers : wait.activity};
  }
  return {plain, wait.activity};
}

}  // namespace

std::vector<Frame> frames_of_py_spy(const std::string& text) {
  std::vector<Frame> frames;
  bool main = false, any = false;
  for (const std::string& line : split(text)) {
    if (line.starts_with("Thread ")) {
      // Without names, the first one will do.
      main = has(line, "\"MainThread\"") || (!any && !has(text, "\"MainThread\""));
      any = true;
    } else if (const auto frame = py_spy_frame(line); frame && main) {
      frames.push_back(*frame);
    }
  }
  return frames;
}

std::vector<Frame> frames_of_gdb(const std::string& text, int pid) {
  const std::string number = std::to_string(pid);
  std::vector<Frame> frames;
  bool main = false;
  for (const std::string& line : split(text)) {
    if (line.starts_with("Thread ")) {
      main = names(line, "LWP " + number) || names(line, "process " + number);
      if (!frames.empty()) break;
    } else if (const auto frame = gdb_frame(line); frame && main) {
      frames.push_back(*frame);
    }
  }
  return frames;
}

StackLocation stack_location_of(const KernelWait& kernel, const std::vector<Frame>& python,
                                const std::vector<Frame>& native) {
  const WaitText wait = wait_of(kernel);
  StackLocation stack_location =
      python.empty() ? native_standing(wait, native) : python_standing(wait, python);
  stack_location.where = printable(stack_location.where.substr(0, kLongest));
  return stack_location;
}

}  // namespace dtrun::agent
