// The places where CUDA's libraries may be: an ordered list, from the environment alone. open.h opens them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dtrun::worker::cuda {

// The environment variables that the search reads. Unset and empty are the same.
struct LibraryFolders {
  std::string own;        // $DTRUN_CUDA_LIBRARY_PATH: folders, separated by colons
  std::string cuda_home;  // $CUDA_HOME
};

// The arguments for dlopen(), best first: `soname` in each folder of `own`, then by the loader's rules, then
// in the folders of the toolkit's packages. No place is listed twice.
std::vector<std::string> installed_places(const std::string& soname, const LibraryFolders& folders);

// The places in NVIDIA's wheels, which PyTorch's wheels depend on: nvidia/NAME/lib in each folder of
// `python_path` (Python's sys.path). entries(folder) returns the names in a folder, none if the folder does
// not exist.
std::vector<std::string> wheel_places(
    const std::string& soname, const std::vector<std::string>& python_path,
    const std::function<std::vector<std::string>(const std::string& folder)>& entries);

}  // namespace dtrun::worker::cuda
