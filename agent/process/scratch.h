// A temporary folder of the agent's own, for files that no other user may see and that are gone after it.
#pragma once

#include <filesystem>
#include <utility>

#include "agent/system/disk.h"
#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::agent {

// A new name for it, absolute: below the folder of temporary files, or below /tmp if that folder is so deep
// that the coordinator's socket would have too long a name.
std::filesystem::path new_scratch_path();
// The socket on which a job of one node reaches its coordinator.
std::filesystem::path coordinator_socket_in(const std::filesystem::path& scratch);

class Scratch {
 public:
  // `disk` does what it asks of the file system, where others may use it for files of the folder.
  Scratch(std::filesystem::path path, Disk& disk) : path_(std::move(path)), disk_(disk) {}
  ~Scratch();  // removes the folder
  Scratch(const Scratch&) = delete;

  // Makes the folder unless that was done, and removes those of this user's processes that are gone: a
  // scheduler's SIGKILL leaves them. Fails if something of that name is there. Waits: to be called first
  // before there is anything to supervise.
  Status make();
  // True if files in it can be used without a long wait.
  bool answers();
  Disk& disk() { return disk_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
  Disk& disk_;
  bool made_ = false;
  Descriptor lock_;  // on the folder, for as long as this process lives
};

}  // namespace dtrun::agent
