// cuDNN's plans of an earlier start, in a file that saves the time to make them again. Nothing else depends
// on it: one that is missing, damaged or cannot be written only costs that time.
#pragma once

#include <filesystem>
#include <string>

namespace dtrun::worker::cuda {

// "" if there is none, or no `file` is named.
std::string read_plans(const std::filesystem::path& file);

// Becomes the file at once or not at all, so that several workers may read and write it at any time.
// Its folder is made if need be.
void keep_plans(const std::filesystem::path& file, const std::string& text);

}  // namespace dtrun::worker::cuda
