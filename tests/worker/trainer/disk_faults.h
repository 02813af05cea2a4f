// A disk that fails: the calls by which this program changes files below one directory are counted, and at
// one of these calls the program is killed, the power fails, or the disk is full or broken. Its open, write,
// fsync, rename and the like take the C library's place, as they do for the C++ library's std::filesystem.
#pragma once

#include <string>

namespace dtrun::test {

enum class DiskFault {
  kNone,
  kKill,      // SIGKILL before the call
  kPowerCut,  // the same, and all that was not synced is lost: content, new names, renames
  kFull,      // ENOSPC, from this call on
  kBroken,    // EIO, once
  kShort,     // a write that takes half of it
};

constexpr int kMostDiskCalls = 4096;

// Seen by the parent of the process that has the fault.
struct DiskLog {
  int calls = 0;
  bool writes[kMostDiskCalls] = {};     // whether the call, counted from 0, is a write
  char names[kMostDiskCalls][16] = {};  // and its name
  bool synced[8] = {};                  // by step: the checkpoint's name reached the disk
};

// From now on, in this process. `log` is memory shared with the parent.
void fail_disk(const std::string& directory, DiskFault fault, int at_call, DiskLog* log);

}  // namespace dtrun::test
