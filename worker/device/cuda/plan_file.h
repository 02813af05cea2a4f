// cuDNN's plans of an earlier start, in a file that saves the time to make them again. A file that is
// missing, damaged or cannot be written only costs that time.
#pragma once

#include <filesystem>
#include <string>

namespace dtrun::worker::cuda {

// "" if the file does not exist, or `file` is empty.
std::string read_plans(const std::filesystem::path& file);

// Replaces the file atomically, so that several workers may read and write it at any time.
// Makes the file's folder if needed.
void keep_plans(const std::filesystem::path& file, const std::string& text);

}  // namespace dtrun::worker::cuda
