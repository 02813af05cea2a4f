// One run at a time writes an output directory: its rank 0 (on a node with a disk of its own, the node's
// first rank) holds a lock file there for as long as it lives. The kernel releases the lock however the
// process ends, so a dead run never blocks another.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::worker {

class OutputLock {
 public:
  // Creates the directory if needed. Waits up to `patience` for a writer that is about to end; throws
  // WorkerError (EX_CANTCREAT) that names the directory and the holder if the writer does not end. On a file
  // system without locks nothing is locked.
  OutputLock(const std::filesystem::path& output_dir, std::chrono::milliseconds patience);
  OutputLock(const OutputLock&) = delete;
  bool held() const { return held_; }  // false where the file system knows no locks
  // The text of this holder in the lock file, unique among holders.
  const std::string& signature() const { return signature_; }

 private:
  Descriptor fd_;
  bool held_ = false;
  std::string signature_;
};

// The process that writes there now, as "process 12 on host-a", or "" if its signature is missing; nothing if
// no process writes there. Changes nothing.
std::optional<std::string> current_writer(const std::filesystem::path& output_dir);

// EX_CANTCREAT with a message that `writer` uses the directory.
Status in_use(const std::filesystem::path& output_dir, const std::string& writer);

// How long a new run waits for a writer that is about to end.
inline constexpr std::chrono::seconds kLockPatience{3};

// The signature of the last holder; empty if there was none. Two nodes that read the same signature see the
// same directory, also where locks do not reach beyond a node (NFS and Lustre can be mounted so).
std::string lock_signature(const std::filesystem::path& output_dir);
inline constexpr std::size_t kMaxLockSignature = 512;

}  // namespace dtrun::worker
