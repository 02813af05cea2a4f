// Opens one of CUDA's libraries at run time. They are not linked, so that a worker that trains on the CPU
// starts without them, and a missing library gives a clear message.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace dtrun::worker::cuda {

struct Library {
  std::string name;      // "cuBLASLt", for people
  std::string soname;    // "libcublasLt.so.13"
  std::string versions;  // "13.x", for people
  std::string wheel;     // "nvidia-cublas", the package that pip installs
};

// An open library's functions by name. Remembers a function that is missing.
class Symbols {
 public:
  explicit Symbols(void* handle) : handle_(handle) {}

  template <class Function>
  void get(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(address(name));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* address(const char* name);

  void* handle_;
  std::string missing_;
};

// Opens `library` in the first place (search.h) where it has all functions that `fill` gets and where
// `refuse`, called after fill, returns "" and not a reason ("is version 12.9"). The library stays open for
// the process's life. Returns the file's name. Throws WorkerError with EX_CONFIG and one line that names
// every place that was searched. Any thread.
std::string open_library(const Library& library, const std::function<void(Symbols&)>& fill,
                         const std::function<std::string()>& refuse);

// "9.19.0" for 91900, the form of version numbers of cuBLASLt and cuDNN.
std::string version_text(std::size_t number);

}  // namespace dtrun::worker::cuda
