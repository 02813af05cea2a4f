// Files that exist whole or not at all, also after a power cut: written, synced, renamed, parent synced.
// Failures to write throw the WorkerError of cannot_write (worker/base/error.h).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "proto/base/descriptor.h"

namespace dtrun::worker {

// Creates or overwrites `path` with the pieces one behind the other, and syncs it.
void write_synced(const std::filesystem::path& path, std::span<const std::string_view> pieces);

// The same, but `path` keeps its old content until the new one is complete. Uses PATH's directory.
void replace_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

void make_directories(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& path);

// Moves directory `from` to `to`. A directory at `to` is exchanged atomically and is at `from` afterwards. On
// file systems that cannot exchange, `to` is absent for a moment.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// A new directory that is marked as in use while this object lives, by a lock that the writer's death
// releases. The destructor removes the directory with its contents.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::filesystem::path path);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor lock_;
};

// Removes `path` if it is a scratch directory whose writer is gone.
void remove_if_abandoned(const std::filesystem::path& path);

}  // namespace dtrun::worker
