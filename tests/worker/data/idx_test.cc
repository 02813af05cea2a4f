#include "worker/data/images/idx.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <numeric>

#include "tests/support/files.h"
#include "tests/worker/data/idx_files.h"
#include "worker/base/pulse.h"
#include "worker/data/gzip.h"
#include "worker/data/message.h"

namespace dtrun::worker::idx_test {
namespace {

using dtrun::test::contains;

// Its values stay until the next call.
Result<IdxArray> parse(const std::string& file, int rank) {
  static std::vector<std::uint8_t> content;
  return parse_idx(as_bytes(file), rank, [](std::size_t bytes) {
    content.assign(bytes, 0xff);
    return std::span(content);
  });
}

std::string fault_of(const std::string& file, int rank) {
  const auto result = parse(file, rank);
  if (result.ok()) return "accepted";
  CHECK(result.status().exit_code() == kExitNoInput);
  return result.status().message();
}

const std::string kPixels("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c", 12);

TEST_CASE("an array is read raw and from gzip alike") {
  const std::string raw = idx_file({2, 2, 3}, kPixels);
  const std::string members = gzip(raw.substr(0, 5)) + gzip("") + gzip(raw.substr(5));
  for (const std::string& file : {raw, gzip(raw), members}) {
    const auto array = parse(file, 3);
    REQUIRE_MESSAGE(array.ok(), array.status().message());
    CHECK(array.value().dims == std::vector<std::uint32_t>{2, 2, 3});
    CHECK(std::string(array.value().values.begin(), array.value().values.end()) == kPixels);
  }
}

TEST_CASE("a file cut at any byte is refused") {
  const std::string raw = idx_file({2, 2, 3}, kPixels);
  const std::string packed = gzip(raw);
  for (std::size_t size = 0; size < raw.size(); ++size) CHECK(fault_of(raw.substr(0, size), 3) != "accepted");
  for (std::size_t size = 0; size < packed.size(); ++size)
    CHECK(fault_of(packed.substr(0, size), 3) != "accepted");
}

TEST_CASE("a truncated file says how much of it is there") {
  const std::string raw = idx_file({2000}, std::string(2000, '\1'));
  CHECK(fault_of(raw.substr(0, 1234), 1) == "file ends after 1,234 of 2,008 bytes: truncated");
  CHECK(fault_of(raw.substr(0, 7), 1) == "file ends after 7 of 8 bytes: truncated");
  const std::string packed = gzip(idx_file({2, 2, 3}, kPixels));
  CHECK(contains(fault_of(packed.substr(0, packed.size() - 12), 3), "file ends within the gzip data, after"));
  CHECK(fault_of(packed.substr(0, packed.size() - 1), 3) == "file ends within the gzip trailer: truncated");
}

TEST_CASE("a wrong beginning says what the file is instead") {
  CHECK(fault_of("\x7f"
                 "ELF....",
                 1) == "begins with 7f 45 4c 46 where 00 00 08 01 is expected: not an IDX file");
  CHECK(contains(fault_of(idx_file({2, 2, 3}, kPixels), 1), "an IDX file of images, not of labels"));
  CHECK(contains(fault_of(idx_file({12}, kPixels), 3), "an IDX file of labels, not of images"));
  std::string floats = idx_file({3}, kPixels);
  floats[2] = 0x0d;
  CHECK(contains(fault_of(floats, 1), "elements of another type than unsigned bytes"));
}

TEST_CASE("what follows the array is refused") {
  const std::string raw = idx_file({12}, kPixels);
  CHECK(contains(fault_of(raw + "x", 1), "content after the end of the array"));
  CHECK(contains(fault_of(gzip(raw + "x"), 1), "content after the end of the array"));
  CHECK(contains(fault_of(gzip(raw) + "xyz", 1), "3 bytes of garbage follow the gzip data"));
  CHECK(contains(fault_of(gzip(raw) + std::string(511, '\0') + "z", 1), "512 bytes of garbage"));
  CHECK(fault_of(gzip(raw) + std::string(512, '\0'), 1) == "accepted");  // as tar pads
  CHECK(contains(fault_of(gzip(raw) + gzip("x"), 1), "content after the end of the array"));
  CHECK(contains(fault_of(gzip(raw) + "\x1f\x8bzzz", 1), "gzip data is corrupt at its end"));
}

TEST_CASE("a header of impossible size is refused before anything is allocated") {
  CHECK(contains(fault_of(idx_file({0xffffffff, 0xffffffff, 0xffffffff}, ""), 3), "corrupt"));
  CHECK(contains(fault_of(idx_file({0x80000000, 2, 8}, "abc"), 3),
                 "file ends after 19 of 34,359,738,384 bytes"));
  CHECK(contains(fault_of(gzip(idx_file({0x80000000, 2, 8}, "abc")), 3),
                 "more than gzip data of this size can hold"));
  CHECK(contains(fault_of(idx_file({0, 28, 28}, ""), 3), "is empty"));
}

TEST_CASE("2^36 values are believed if the file is as long, more never are") {
  CHECK(contains(fault_of(idx_file({0x10000, 0x10000, 16}, "abc"), 3),
                 "file ends after 19 of 68,719,476,752 bytes"));
  CHECK(contains(fault_of(idx_file({0x10000, 0x10000, 17}, "abc"), 3), "65,536 x 17 values: corrupt"));
}

TEST_CASE("gzip data is taken to hold up to 1040 times its size, which deflate does not reach") {
  const std::string zeros(8 << 20, '\0');
  const std::string dense = gzip(idx_file({static_cast<std::uint32_t>(zeros.size())}, zeros));
  CHECK(dense.size() * 1020 < zeros.size());
  CHECK(fault_of(dense, 1) == "accepted");

  // A file that says it holds `more` values than 1040 times its size.
  auto fault_at_limit = [](std::uint32_t more) {
    std::string file = gzip(idx_file({1}, "abc"));
    for (int attempt = 0; attempt < 20; ++attempt) {  // the number is in the file, and may change its size
      const auto content = static_cast<std::uint32_t>(file.size() * 1040) + more;
      const std::size_t size = file.size();
      file = gzip(idx_file({content - 8}, "abc"));
      if (file.size() == size) return fault_of(file, 1);
    }
    return std::string("no such file was found");
  };
  CHECK(contains(fault_at_limit(0), "the gzip content ends after 11 of"));
  CHECK(contains(fault_at_limit(1), "more than gzip data of this size can hold"));
}

TEST_CASE("a long gzip file gives a sign of life with every 16 MiB of its content") {
  const std::size_t piece = std::size_t{16} << 20;
  const std::string packed = gzip(std::string(piece + 1, 'x'));
  for (const std::size_t more : {0, 1}) {
    GzipReader reader(as_bytes(packed));
    std::vector<std::uint8_t> content(piece + more);
    const std::uint64_t before = Pulse::read();
    CHECK(reader.read(content) == content.size());
    CHECK(Pulse::read() - before == 1 + more);
  }
}

TEST_CASE("one flipped bit anywhere in a gzip file is never read as good data") {
  const std::string raw = idx_file({2, 2, 3}, kPixels);
  const std::string packed = gzip(raw);
  for (std::size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const auto array = parse(damaged, 3);
    // The gzip header has bytes that mean nothing to the content (time, system).
    if (array.ok()) CHECK(std::string(array.value().values.begin(), array.value().values.end()) == kPixels);
  }
  std::string wrong_checksum = packed;
  wrong_checksum[packed.size() - 8] = static_cast<char>(wrong_checksum[packed.size() - 8] ^ 1);
  CHECK(contains(fault_of(wrong_checksum, 3), "gzip data is corrupt at its end (incorrect data check)"));
}

TEST_CASE("numbers in messages have thousands separators") {
  CHECK(with_thousands(0) == "0");
  CHECK(with_thousands(999) == "999");
  CHECK(with_thousands(1000) == "1,000");
  CHECK(with_thousands(47040016) == "47,040,016");
}

}  // namespace
}  // namespace dtrun::worker::idx_test
