#include "worker/trainer/recovery/in_memory_checkpoint_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

constexpr std::uint64_t kInMemoryCheckpointMagic = 0x3130'7970'6f63'7464;  // "dtcopy01"
constexpr std::size_t kHeaderRoom = 4096;

std::size_t bytes_of_half(const InMemoryCheckpointFile::Shape& shape) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = kHeaderRoom + shape.vectors * shape.floats * sizeof(float);
  return (bytes + page - 1) / page * page;
}

std::uint64_t bytes_hash(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

std::uint64_t values_hash(const InMemoryCheckpointFile::Shape& shape, const float* values) {
  std::uint64_t hash = kNothingHashed;
  for (std::size_t vector = 0; vector < shape.vectors; ++vector, values += shape.floats)
    for (std::size_t at = 0; at < shape.floats; at += kHashedAtOnce)
      hash = add_to_hash(hash, {values + at, std::min(kHashedAtOnce, shape.floats - at)});
  return hash;
}

WorkerError no_memory(std::size_t bytes, const std::string& why) {
  return {kExitIo, std::to_string(bytes / 1'000'000) + " MB of the host's memory: " + why};
}

}  // namespace

struct InMemoryCheckpointFile::Header {
  std::uint64_t magic, job, vectors, floats;
  std::uint64_t sequence;  // larger in the newer of two whole halves, whose step may be smaller
  std::int64_t step;
  std::uint64_t record_bytes, record_hash, values_hash;
  std::uint64_t own_hash;  // hash of all the above; 0: not whole

  std::uint64_t expected() const {
    const std::uint64_t hash =
        bytes_hash(kNothingHashed, std::as_bytes(std::span(this, 1)).first(offsetof(Header, own_hash)));
    return hash == 0 ? 1 : hash;
  }
};

InMemoryCheckpointFile::InMemoryCheckpointFile(int descriptor, const Shape& shape)
    : shape_(shape), half_bytes_(bytes_of_half(shape)) {
  static_assert(sizeof(Header) + kLargestRecord <= kHeaderRoom);
  const std::size_t bytes = 2 * half_bytes_;
  struct stat file {};
  int error = fstat(descriptor, &file) == 0 ? 0 : errno;
  const bool fits = error == 0 && (file.st_size == 0 || static_cast<std::size_t>(file.st_size) == bytes);
  if (fits && file.st_size == 0) error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (fits && error == 0) {
    fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);  // fails if done before
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (memory == MAP_FAILED)
      error = errno;
    else
      memory_ = static_cast<std::byte*>(memory);
  }
  close(descriptor);
  if (memory_ != nullptr) return;
  throw no_memory(bytes, fits || error != 0 ? std::strerror(error) : "the agent's file has another size");
}

InMemoryCheckpointFile::~InMemoryCheckpointFile() { munmap(memory_, 2 * half_bytes_); }

InMemoryCheckpointFile::Header& InMemoryCheckpointFile::header(int half) const {
  return *reinterpret_cast<Header*>(memory_ + static_cast<std::size_t>(half) * half_bytes_);
}

float* InMemoryCheckpointFile::values(int half) const {
  return reinterpret_cast<float*>(memory_ + static_cast<std::size_t>(half) * half_bytes_ + kHeaderRoom);
}

std::span<float> InMemoryCheckpointFile::memory() const {
  return {reinterpret_cast<float*>(memory_), 2 * half_bytes_ / sizeof(float)};
}

// Checks only the header: values are checked before they are taken.
bool InMemoryCheckpointFile::is_whole(int half) const {
  const Header& is = header(half);
  return is.own_hash == is.expected() && is.magic == kInMemoryCheckpointMagic && is.job == shape_.job &&
         is.vectors == shape_.vectors && is.floats == shape_.floats && is.record_bytes == shape_.record;
}

std::optional<InMemoryCheckpointFile::Copy> InMemoryCheckpointFile::newest() const {
  std::optional<Copy> found;
  for (int half = 0; half < 2; ++half) {
    const Header& is = header(half);
    if (!is_whole(half) || (found && is.sequence < header(0).sequence)) continue;
    const std::span record{reinterpret_cast<const std::byte*>(&is + 1), shape_.record};
    if (bytes_hash(kNothingHashed, record) != is.record_hash) continue;
    if (values_hash(shape_, values(half)) != is.values_hash) continue;
    found = {.step = is.step, .record = record, .values = values(half)};
  }
  return found;
}

float* InMemoryCheckpointFile::begin() {
  const std::uint64_t newest[] = {is_whole(0) ? header(0).sequence : 0, is_whole(1) ? header(1).sequence : 0};
  writing_ = newest[0] <= newest[1] ? 0 : 1;
  sequence_ = std::max(newest[0], newest[1]) + 1;
  std::atomic_ref(header(writing_).own_hash).store(0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return values(writing_);
}

void InMemoryCheckpointFile::publish(std::int64_t step, std::span<const std::byte> record,
                                     std::uint64_t hash) {
  Header& is = header(writing_);
  std::memcpy(&is + 1, record.data(), record.size());
  is.magic = kInMemoryCheckpointMagic, is.job = shape_.job, is.vectors = shape_.vectors,
  is.floats = shape_.floats;
  is.sequence = sequence_, is.step = step;
  is.record_bytes = record.size(), is.record_hash = bytes_hash(kNothingHashed, record);
  is.values_hash = hash;
  std::atomic_ref(is.own_hash).store(is.expected());
}

// Sums, and sums of the sums so far, so that the order matters too; several side by side fit vector
// registers.
std::uint64_t add_to_hash(std::uint64_t hash, std::span<const float> piece) {
  constexpr std::size_t kSums = 8, kAtOnce = kSums * sizeof(std::uint64_t) / sizeof(float);
  std::array<std::uint64_t, kSums> sum{}, sums{}, words{};
  const auto add = [&](const float* values, std::size_t floats) {
    std::memcpy(words.data(), values, floats * sizeof(float));
    for (std::size_t k = 0; k < kSums; ++k) sum[k] += words[k], sums[k] += sum[k];
  };
  const std::size_t whole = piece.size() / kAtOnce * kAtOnce;
  for (std::size_t at = 0; at < whole; at += kAtOnce) add(piece.data() + at, kAtOnce);
  words = {};
  add(piece.data() + whole, piece.size() - whole);
  hash = bytes_hash(hash, std::as_bytes(std::span(sum)));
  return bytes_hash(hash, std::as_bytes(std::span(sums)));
}

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (const float value : values) bad |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  return bad == 0;
}

std::uint64_t text_hash(const std::string& text) {
  return bytes_hash(kNothingHashed, std::as_bytes(std::span(text)));
}

}  // namespace dtrun::worker
