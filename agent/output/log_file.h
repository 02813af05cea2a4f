// A file that only grows, up to a size: then it becomes FILE.1, FILE.1 becomes FILE.2, and a new one begins.
// Lines stay whole, so a file may exceed the size by the rest of a line, up to twice the size. Blocking, like
// any disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::agent {

class LogFile {
 public:
  static constexpr int kKept = 5;  // old files: FILE.1 … FILE.5

  LogFile() = default;  // not open: takes nothing
  enum class Writers { kAnyNumber, kOneProcess };
  // Appends to a file that exists. `max_size` in bytes; 0: it grows without limit. EX_CANTCREAT if another
  // process has the file for itself: their lines would mix.
  static Result<LogFile> open(const std::filesystem::path& path, std::uint64_t max_size,
                              Writers writers = Writers::kAnyNumber);

  bool is_open() const { return file_.open(); }
  // After a failure it is closed.
  Status write(std::string_view bytes);

 private:
  Status reopen();
  Status rotate();
  std::size_t portion(std::string_view bytes) const;

  std::filesystem::path path_;
  std::uint64_t max_size_ = 0;
  Writers writers_ = Writers::kAnyNumber;
  std::uint64_t size_ = 0;
  bool at_line_start_ = true;
  Descriptor file_;
};

}  // namespace dtrun::agent
