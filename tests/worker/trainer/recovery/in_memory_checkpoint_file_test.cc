#include "worker/trainer/recovery/in_memory_checkpoint_file.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

#include "worker/base/error.h"

namespace dtrun::worker::in_memory_checkpoint_file_test {
namespace {

using Record = std::array<std::byte, 24>;
// A vector is longer than a piece that is hashed at once.
constexpr InMemoryCheckpointFile::Shape kShape{
    .vectors = 3, .floats = kHashedAtOnce + 100, .record = sizeof(Record), .job = 7};

// The file that the agent holds.
class File {
 public:
  ~File() { close(descriptor_); }
  int descriptor() const { return dup(descriptor_); }
  InMemoryCheckpointFile open(const InMemoryCheckpointFile::Shape& shape = kShape) const {
    return {descriptor(), shape};
  }

 private:
  const int descriptor_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
};

// Values that tell steps apart.
std::vector<float> values_of(std::int64_t step) {
  std::vector<float> values(kShape.vectors * kShape.floats);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step) + 1.0f / float(i + 1);
  return values;
}

Record record_of(std::int64_t step) {
  Record record;
  record.fill(static_cast<std::byte>(step));
  return record;
}

void write(InMemoryCheckpointFile& file, std::int64_t step) {
  const std::vector<float> values = values_of(step);
  std::copy(values.begin(), values.end(), file.begin());
  std::uint64_t hash = kNothingHashed;
  for (std::size_t vector = 0; vector < kShape.vectors; ++vector)
    for (std::size_t at = 0; at < kShape.floats; at += kHashedAtOnce)
      hash = add_to_hash(
          hash, {values.data() + vector * kShape.floats + at, std::min(kHashedAtOnce, kShape.floats - at)});
  file.publish(step, record_of(step), hash);
}

// The step of the copy that a replacement finds, whole; -1: none.
std::int64_t found_in(const InMemoryCheckpointFile& file) {
  const auto copy = file.newest();
  if (!copy) return -1;
  const std::vector<float> values = values_of(copy->step);
  CHECK(std::equal(values.begin(), values.end(), copy->values));
  CHECK(std::ranges::equal(copy->record, record_of(copy->step)));
  return copy->step;
}

TEST_CASE("what one process has written, its replacement finds; a new file has nothing") {
  const File file;
  {
    InMemoryCheckpointFile first = file.open();
    CHECK(found_in(first) == -1);
    write(first, 4);
  }
  InMemoryCheckpointFile second = file.open();
  CHECK(found_in(second) == 4);
  write(second, 5);
  write(second, 6);
  CHECK(found_in(file.open()) == 6);
}

TEST_CASE("the last copy counts, also where the run had to go back and its step is smaller") {
  const File file;
  InMemoryCheckpointFile copies = file.open();
  for (const std::int64_t step : {10, 11, 8}) write(copies, step);
  CHECK(found_in(file.open()) == 8);
  write(copies, 9);
  CHECK(found_in(file.open()) == 9);
  copies.begin()[0] = 0;
  CHECK(found_in(file.open()) == 9);
}

TEST_CASE("a writer that dies in the middle of a copy leaves the one before") {
  const File file;
  InMemoryCheckpointFile copies = file.open();
  std::fill_n(copies.begin(), kShape.floats, 1.0f);
  CHECK(found_in(file.open()) == -1);
  for (std::int64_t step = 1; step < 5; ++step) {
    write(copies, step);
    std::fill_n(copies.begin(), kShape.floats, 1.0f);
    CHECK(found_in(file.open()) == step);
  }
}

TEST_CASE("a half with any wrong byte is not taken, and the other one is") {
  const File file;
  InMemoryCheckpointFile copies = file.open();
  write(copies, 1);
  write(copies, 2);
  const std::span<std::byte> all = std::as_writable_bytes(copies.memory());
  const std::size_t half = all.size() / 2;
  const std::size_t record = 9 * 8 + 8, values = 4096;  // behind the header's fields
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < record + sizeof(Record); ++at) places.push_back(at);
  for (const std::size_t at : {std::size_t{0}, kShape.floats * 4 - 1, kShape.vectors * kShape.floats * 4 - 1})
    places.push_back(values + at);
  for (const std::size_t at : places) {
    CAPTURE(at);
    all[half + at] ^= std::byte{16};
    CHECK(found_in(file.open()) == 1);
    all[half + at] ^= std::byte{16};
    all[at] ^= std::byte{16};
    CHECK(found_in(file.open()) == 2);
    all[half + at] ^= std::byte{16};
    CHECK(found_in(file.open()) == -1);
    all[at] ^= std::byte{16}, all[half + at] ^= std::byte{16};
  }
  CHECK(found_in(file.open()) == 2);
  write(copies, 3);
  CHECK(found_in(file.open()) == 3);
}

TEST_CASE("memory full of anything is no copy") {
  const File file;
  InMemoryCheckpointFile copies = file.open();
  std::ranges::fill(copies.memory(), 0.5f);
  CHECK(found_in(file.open()) == -1);
  write(copies, 3);
  CHECK(found_in(file.open()) == 3);
}

TEST_CASE("a copy of another job, optimizer or model is not taken") {
  const File file;
  InMemoryCheckpointFile copies = file.open();
  write(copies, 3);
  InMemoryCheckpointFile::Shape other = kShape;
  other.job = 8;
  CHECK_FALSE(file.open(other).newest());
  other = kShape;
  other.record -= 8;
  CHECK_FALSE(file.open(other).newest());
  other = kShape;
  other.vectors = 1, other.floats *= 3;  // as many bytes
  CHECK_FALSE(file.open(other).newest());
  for (const std::size_t vectors : {2, 4}) {
    other = kShape;
    other.vectors = vectors;
    CHECK_THROWS_WITH_AS(file.open(other), doctest::Contains("another size"), WorkerError);
  }
  CHECK(found_in(file.open()) == 3);
}

TEST_CASE("the file keeps its size, and what cannot be had is told") {
  const File file;
  {
    const InMemoryCheckpointFile copies = file.open();
    const int descriptor = file.descriptor();
    CHECK(ftruncate(descriptor, 4096) == -1);
    CHECK(errno == EPERM);
    close(descriptor);
  }
  // A limit stands in for a machine without memory.
  const File another;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit low{4096, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
  CHECK_THROWS_WITH_AS(another.open(), doctest::Contains("MB of the host's memory: "), WorkerError);
  setrlimit(RLIMIT_FSIZE, &before);
  InMemoryCheckpointFile copies = another.open();
  write(copies, 1);
  CHECK(found_in(another.open()) == 1);
}

}  // namespace
}  // namespace dtrun::worker::in_memory_checkpoint_file_test
