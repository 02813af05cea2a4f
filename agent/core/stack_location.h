// The place where one worker stands, in a few words: made of the kernel's view of its main thread, and of the
// stacks that py-spy or gdb printed. Workers with equal words stand at the same place. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/core/vocabulary.h"

namespace dtrun::agent {

// The kernel's view of a thread.
struct KernelWait {
  char state = '?';     // of /proc/PID/stat: R, S, D, T …
  std::string call;     // system call, "clock_nanosleep"; empty: none, or not known
  std::string channel;  // function of the kernel that it sleeps in, "hrtimer_nanosleep"; may be empty
  std::string file;     // that the call reads or writes: a path, "socket:[4711]", "pipe:[4711]"; may be empty
  bool computes = false;  // it used the CPU while it was looked at
};

struct StackLocation {
  std::string where;  // "all_reduce at train.py:88", "sleep (clock_nanosleep)"; never empty once looked at
  Activity activity = Activity::kUnseen;
};

struct Frame {
  std::string function;
  std::string file;  // source file, or library; empty: unknown
  std::string line;  // of a source file
};

// The main thread's frames, the innermost first; empty if `text` has none. They parse py-spy dump
// --full-filenames, and gdb's thread apply all backtrace for process `pid`.
std::vector<Frame> frames_of_py_spy(const std::string& text);
std::vector<Frame> frames_of_gdb(const std::string& text, int pid);

// Python's frames tell most: the user's own line, and the function that it calls. Without them `native`,
// gdb's frames, are used.
StackLocation stack_location_of(const KernelWait& wait, const std::vector<Frame>& python,
                                const std::vector<Frame>& native);

}  // namespace dtrun::agent
