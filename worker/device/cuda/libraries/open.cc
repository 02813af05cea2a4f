#include "worker/device/cuda/libraries/open.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "worker/base/error.h"
#include "worker/device/cuda/libraries/python_path.h"
#include "worker/device/cuda/libraries/search.h"

namespace dtrun::worker::cuda {
namespace {

// Python starts within tens of milliseconds, or seconds from a network disk.
constexpr std::chrono::seconds kPythonLimit{20};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open.get())) names.emplace_back(entry->d_name);
  return names;
}

// One search: the places that were tried, and the file that was taken.
class LibrarySearch {
 public:
  LibrarySearch(const std::function<void(Symbols&)>& fill, const std::function<std::string()>& refuse)
      : fill_(fill), refuse_(refuse) {}

  // Tries the places in order; true if one is taken.
  bool look_in(const std::vector<std::string>& places) {
    for (const std::string& place : places) {
      const std::string why = open(place);
      if (why.empty()) return true;
      tried_ += (tried_.empty() ? "" : ", ") + place + " (" + why + ")";
    }
    return false;
  }

  const std::string& file() const { return file_; }
  const std::string& tried() const { return tried_; }

 private:
  // "", or the reason why the place is not taken.
  std::string open(const std::string& place) {
    const bool by_loader = place.find('/') == std::string::npos;
    if (!by_loader && access(place.c_str(), F_OK) != 0) return "not there";
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return by_loader ? "not in the loader's folders" : dlerror();
    Symbols symbols(handle);
    fill_(symbols);
    std::string why = symbols.missing().empty() ? refuse_() : "has no " + symbols.missing();
    if (!why.empty()) {
      dlclose(handle);
      return why;
    }
    const link_map* loaded = nullptr;
    file_ = dlinfo(handle, RTLD_DI_LINKMAP, &loaded) == 0 ? loaded->l_name : place;
    return "";
  }

  const std::function<void(Symbols&)>& fill_;
  const std::function<std::string()>& refuse_;
  std::string file_, tried_;
};

}  // namespace

void* Symbols::address(const char* name) {
  void* found = dlsym(handle_, name);
  if (found == nullptr && missing_.empty()) missing_ = name;
  return found;
}

std::string open_library(const Library& library, const std::function<void(Symbols&)>& fill,
                         const std::function<std::string()>& refuse) {
  LibrarySearch search(fill, refuse);
  const LibraryFolders folders{.own = environment("DTRUN_CUDA_LIBRARY_PATH"),
                               .cuda_home = environment("CUDA_HOME")};
  if (search.look_in(installed_places(library.soname, folders))) return search.file();
  const std::vector<std::string> packages = python_path("python3", kPythonLimit);
  if (search.look_in(wheel_places(library.soname, packages, entries))) return search.file();
  std::string tried = search.tried() + ", nvidia/*/lib of python3's packages (";
  if (packages.empty()) tried += "no python3 on PATH that answers";
  for (const std::string& folder : packages) tried += (&folder == packages.data() ? "" : ":") + folder;
  throw WorkerError(kExitConfig, library.name + " " + library.versions +
                                     " is needed on a GPU and not found. Tried " + tried +
                                     "). Install it (pip: " + library.wheel +
                                     "), or name its folder in DTRUN_CUDA_LIBRARY_PATH");
}

std::string version_text(std::size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

}  // namespace dtrun::worker::cuda
