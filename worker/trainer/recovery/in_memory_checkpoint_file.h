// Memory that outlives the worker which writes it: a file without a name (memfd) that the agent holds and
// passes to the worker's replacement. It has room for two copies of a state. One is written while the other
// stays whole, so a writer that dies at any moment leaves the older one; an incomplete copy is never taken.
//
// Each half: a page with [Header | record], then the vectors one after the other. A half is whole once its
// header has its own hash, which is written last and removed first. Only the same build reads the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace dtrun::worker {

class InMemoryCheckpointFile {
 public:
  struct Shape {
    std::size_t vectors = 0;  // parameters, and the optimizer's slots
    std::size_t floats = 0;   // of each
    std::size_t record = 0;   // bytes of the data that goes with them, at most kLargestRecord
    std::uint64_t job = 0;    // hash of config, teacher and data: copies of another job are not taken
  };
  static constexpr std::size_t kLargestRecord = 3072;

  // Takes ownership of the descriptor. A new file gets its size and all its memory now, and can never shrink,
  // so that no access fails later. Throws WorkerError, EX_IOERR, if there is no memory, or for a file of
  // another size.
  InMemoryCheckpointFile(int descriptor, const Shape& shape);
  ~InMemoryCheckpointFile();
  InMemoryCheckpointFile(const InMemoryCheckpointFile&) = delete;

  struct Copy {
    std::int64_t step = 0;
    std::span<const std::byte> record;
    const float* values = nullptr;  // [vectors][floats], until the next begin()
  };
  // The last whole copy of this job. Looks at all its bytes.
  std::optional<Copy> newest() const;

  // Where the next copy's vectors go, in place of the older one: [vectors][floats], page-aligned.
  float* begin();
  // They are there. `hash`: add_to_hash() of each, in order. Now it is the newest.
  void publish(std::int64_t step, std::span<const std::byte> record, std::uint64_t hash);

  std::span<float> memory() const;  // both halves, for a device that needs to know its copies' destination

 private:
  struct Header;
  Header& header(int half) const;
  float* values(int half) const;
  bool is_whole(int half) const;

  const Shape shape_;
  const std::size_t half_bytes_;
  std::byte* memory_ = nullptr;
  int writing_ = 0;             // the half that begin() returned
  std::uint64_t sequence_ = 0;  // of the copy in that half
};

inline constexpr std::uint64_t kNothingHashed = 0x9e3779b97f4a7c15;
// Vectors are hashed in pieces of so many floats, which are still in the cache after their copy.
inline constexpr std::size_t kHashedAtOnce = std::size_t{1} << 16;
// `hash` continued with a piece of a vector. Takes less time than the piece's copy. Detects corrupted memory;
// not cryptographic. REQUIRES: pieces but a vector's last are kHashedAtOnce long.
std::uint64_t add_to_hash(std::uint64_t hash, std::span<const float> piece);

bool all_finite(std::span<const float> values);

// A hash of any text.
std::uint64_t text_hash(const std::string& text);

}  // namespace dtrun::worker
