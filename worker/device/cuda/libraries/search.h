// Where CUDA's libraries may lie: an ordered list of places, from the environment alone. Nothing is opened
// here (open.h does).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dtrun::worker::cuda {

// Of the environment, what the search reads. Unset and empty are the same.
struct LibraryFolders {
  std::string own;        // $DTRUN_CUDA_LIBRARY_PATH: folders, separated by colons
  std::string cuda_home;  // $CUDA_HOME
};

// What dlopen() is to be given, best first: `soname` in each of our own folders, then by the loader's rules,
// then in the folders where the toolkit's packages put it. None is named twice.
std::vector<std::string> installed_places(const std::string& soname, const LibraryFolders& folders);

// The same in NVIDIA's wheels, which PyTorch's depend on: nvidia/NAME/lib in each folder of `python_path`
// (Python's sys.path). entries(folder) gives the names in a folder, none if there is no such folder.
std::vector<std::string> wheel_places(
    const std::string& soname, const std::vector<std::string>& python_path,
    const std::function<std::vector<std::string>(const std::string& folder)>& entries);

}  // namespace dtrun::worker::cuda
