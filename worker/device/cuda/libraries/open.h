// Opens one of CUDA's libraries at run time. They are not linked, so that a worker that trains on the CPU
// starts without them, and a missing library gives a clear message.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "worker/base/error.h"

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

// The members of a table of a library's functions, from a list with F(member, function) for each.
#define DTRUN_TABLE_OF(FUNCTIONS) \
  FUNCTIONS(DTRUN_POINTER)        \
  void get_from(Symbols& symbols) { FUNCTIONS(DTRUN_SYMBOL) }
#define DTRUN_POINTER(member, function) decltype(&(function)) member = nullptr;  // NOLINT: member is declared
#define DTRUN_SYMBOL(member, function) symbols.get(member, #function);

// As open_library(), for a table with its `file`. `refuse` may set more of the table.
template <class Table>
Table open_table(const Library& library, std::string (*refuse)(Table&)) {
  Table table;
  table.file = open_library(
      library, [&](Symbols& symbols) { table.get_from(symbols); }, [&] { return refuse(table); });
  return table;
}

// The table of a library that a worker can do without, or open_library()'s message.
template <class Table>
struct Loaded {
  std::optional<Table> table;
  std::string why_not;

  const Table* get() const { return table ? &*table : nullptr; }
};

template <class Table>
Loaded<Table> load(const Library& library, std::string (*refuse)(Table&)) {
  try {
    return {.table = open_table(library, refuse), .why_not = ""};
  } catch (const WorkerError& error) {
    return {.table = {}, .why_not = error.what()};
  }
}

// "9.19.0" for 91900, the form of version numbers of cuBLASLt and cuDNN.
std::string version_text(std::size_t number);

}  // namespace dtrun::worker::cuda
