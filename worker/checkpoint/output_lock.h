// One run at a time writes an output directory: its rank 0 (on a node with a disk of its own, the node's
// first rank) holds a lock file there for as long as it lives. The kernel lets go of it however the process
// ends, so a dead run never stands in the way.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/core/status.h"

namespace dtrun::worker {

class OutputLock {
 public:
  // Makes the directory if need be. Waits up to `patience` for a writer that is about to end; throws
  // WorkerError (EX_CANTCREAT) that names the directory and the holder if it does not. Where the file system
  // knows no locks, nothing is locked.
  OutputLock(const std::filesystem::path& output_dir, std::chrono::milliseconds patience);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  bool held() const { return held_; }  // false where the file system knows no locks
  // What the lock file says of this holder; no two have the same.
  const std::string& signature() const { return signature_; }

 private:
  int fd_;
  bool held_ = false;
  std::string signature_;
};

// Who writes there now, as "process 12 on host-a", or "" if it did not say; nothing if nobody does. Only
// looks.
std::optional<std::string> current_writer(const std::filesystem::path& output_dir);

// EX_CANTCREAT: that one is in the way.
Status in_use(const std::filesystem::path& output_dir, const std::string& writer);

// How long a new run waits for a writer that is about to end.
inline constexpr std::chrono::seconds kLockPatience{3};

// The signature of the last holder; empty if there was none. Two nodes that read the same one see the same
// directory, also where locks do not reach beyond a node (NFS and Lustre can be mounted so).
std::string lock_signature(const std::filesystem::path& output_dir);
inline constexpr std::size_t kMaxLockSignature = 512;

}  // namespace dtrun::worker
