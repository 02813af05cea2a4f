// A file that is read in place, a piece at a time, so that a file of any size needs no more memory than a
// small one. Read and not mapped: a file that is truncated or a disk that fails while the job trains causes a
// message that names the file, not SIGBUS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::worker {

class InputFile {
 public:
  // Checks that `path` is a readable file, and takes its size. Failures have EX_NOINPUT and name it.
  static Result<InputFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // bytes, when it was opened

  // Reads the bytes at `offset`; any thread calls it. EX_NOINPUT if the file does not have them (any more).
  Status read(std::uint64_t offset, std::span<std::uint8_t> out) const;

  // Tells the system that the file will be read from its beginning to its end.
  void read_ahead() const;

  // Gives the descriptor back; every read opens the file anew from now on. For data sets of more files than a
  // process may have open.
  void close() { descriptor_.reset(); }

 private:
  InputFile(std::filesystem::path path, std::uint64_t size, Descriptor descriptor)
      : path_(std::move(path)), size_(size), descriptor_(std::move(descriptor)) {}

  std::filesystem::path path_;
  std::uint64_t size_;
  Descriptor descriptor_;
};

// The number of a data set's files that stay open.
inline constexpr std::size_t kMostOpenFiles = 128;

}  // namespace dtrun::worker
