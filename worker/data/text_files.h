// The files of a text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::worker {

// `path` itself if it is no directory; else its files at any depth whose names fit `pattern` (as a shell has
// it), in name order, which is the same on every machine. Names that begin with a dot are left out. Failures
// have EX_NOINPUT.
Result<std::vector<std::filesystem::path>> text_files(const std::filesystem::path& path,
                                                      const std::string& pattern);

}  // namespace dtrun::worker
