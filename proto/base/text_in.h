// All of a file, without exceptions: a string made of std::istreambuf_iterator throws what read() says, as of
// a directory or of a process in /proc that has just ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun {

// A regular file, to be read: a FIFO's opener would wait for a writer, and a device may have no end.
// `more_flags`: of open(). EX_NOINPUT: the path and why it cannot be read.
Result<Descriptor> open_regular(const std::filesystem::path& path, int more_flags = 0);

// Its text, but no more than `most` bytes of it. EX_NOINPUT likewise.
Result<std::string> read_text(const std::filesystem::path& path, std::size_t most = std::string::npos);

// As far as it can be read, empty if it cannot be: of a process that ends meanwhile /proc has the begin, or
// nothing.
std::string text_in(const std::filesystem::path& path);

// Its first line, and the number that it begins with: most files of /proc and /sys have no more.
std::string line_in(const std::filesystem::path& path);
std::optional<std::int64_t> number_in(const std::filesystem::path& path);

// Writes the file anew in one step: whoever reads it, or writes it too, finds a whole one. EX_CANTCREAT.
Status replace_text(const std::filesystem::path& path, const std::string& text);

}  // namespace dtrun
