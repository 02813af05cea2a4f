// The bytes that data sets hold in memory: made once on a node, by the first worker that needs them, in a
// file in memory (memfd) that the agent keeps. Every worker maps them, also one that replaces another. The
// file is sealed once they are all there, so an unfinished one is never taken, and nobody can change them.
// Who has no such file, or finds other bytes there than those of the present files, makes its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/descriptor.h"
#include "proto/core/status.h"

namespace dtrun::worker {

using Bytes = std::span<const std::uint8_t>;

// Bytes, what keeps them there, and bits_hash() of those that bytes_of() gave.
struct HeldBytes {
  Bytes bytes;
  std::shared_ptr<const void> memory;
  std::uint64_t hash = 0;
};

// Where so many bytes are to be written; to be called once.
using Room = std::function<std::span<std::uint8_t>(std::size_t bytes)>;

// What tells the present content of a file from an earlier one. The time is that of st_ctime: a copy may set
// st_mtime back, this one only grows.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t changed_ns = 0;
};
// A name for the bytes that `what` (of a job's data sets) makes of files.
std::string data_key(const std::string& what, const std::vector<FileStamp>& files);

class NodeMemory {
 public:
  NodeMemory() = default;  // this process's own memory
  // Takes ownership of the agent's descriptor.
  explicit NodeMemory(int descriptor) : file_(descriptor) {}
  NodeMemory(const NodeMemory&) = delete;

  // The bytes of the data of the name `what` that `make` makes of these files. The first call waits while
  // another worker makes those of the node. A failure is that of `make`. Throws std::bad_alloc.
  Result<HeldBytes> bytes_of(const std::string& what, const std::vector<std::filesystem::path>& files,
                             const std::function<Status(const Room&)>& make);
  // All bytes were made; from now on other workers have them too.
  void seal();

 private:
  struct Entry {
    char key[64];  // data_key()
    std::uint64_t begin, bytes, hash;
    std::string_view key_text() const { return {key, sizeof key}; }
  };
  // The file begins with it.
  struct Table {
    std::uint64_t entries = 0;
    Entry entry[16];
    void add(const std::string& key, std::uint64_t begin, const HeldBytes& held) {
      Entry& one = entry[entries++];
      key.copy(one.key, sizeof one.key);
      one.begin = begin, one.bytes = held.bytes.size(), one.hash = held.hash;
    }
  };
  enum class Part : std::uint8_t { kNotAsked, kAlone, kMakes, kTakes };
  Part take_part();

  Descriptor file_;
  Part part_ = Part::kNotAsked;
  Table table_{};
  std::uint64_t end_ = sizeof(Table);  // of what lies in the file
};

}  // namespace dtrun::worker
