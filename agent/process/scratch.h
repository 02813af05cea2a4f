// A temporary folder of the agent's own, for files that no other user may see and that are gone after it.
#pragma once

#include <filesystem>
#include <utility>

#include "proto/core/status.h"

namespace dtrun::agent {

// A new name for it, absolute: below the folder of temporary files, or below /tmp if that folder is so deep
// that the coordinator's socket would have too long a name.
std::filesystem::path new_scratch_path();
// The socket on which a job of one node reaches its coordinator.
std::filesystem::path coordinator_socket_in(const std::filesystem::path& scratch);

class Scratch {
 public:
  explicit Scratch(std::filesystem::path path) : path_(std::move(path)) {}
  ~Scratch();  // removes the folder
  Scratch(const Scratch&) = delete;

  // Makes the folder unless that was done. Fails if something of that name is there.
  Status make();
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
  bool made_ = false;
};

}  // namespace dtrun::agent
