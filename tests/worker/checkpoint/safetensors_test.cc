#include "worker/checkpoint/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/support/files.h"

namespace dtrun::worker::safetensors_test {
namespace {

using dtrun::test::contains;

// A file with this header text and as many zero bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift);
  }
  return file + header + std::string(data, '\0');
}

std::string fault_of(const std::string& file) {
  const auto result = parse_safetensors(file);
  if (result.ok()) return "accepted";
  CHECK(result.status().exit_code() == kExitNoInput);
  return result.status().message();
}

TEST_CASE("what is written reads back") {
  const std::vector<Tensor> tensors = {{"b", {2, 2}, 0, 4}, {"a", {}, 4, 1}, {"empty", {0, 3}, 5, 0}};
  const float values[] = {1, 2, 3, 4, -0.5f};
  std::string file = safetensors_header(tensors, {{"format", "pt"}});
  CHECK(file.size() % 8 == 0);
  file.append(reinterpret_cast<const char*>(values), sizeof values);

  const auto parsed = parse_safetensors(file);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  CHECK(parsed.value().metadata.at("format") == "pt");
  REQUIRE(parsed.value().tensors.size() == 3);
  CHECK(parsed.value().tensors[0].name == "b");
  CHECK(parsed.value().tensors[0].shape == std::vector<std::int64_t>{2, 2});
  CHECK(parsed.value().tensors[1].shape.empty());
  float read[4];
  copy_values(parsed.value(), parsed.value().tensors[0], read);
  CHECK(std::memcmp(read, values, sizeof read) == 0);
}

TEST_CASE("a file without tensors is a valid one") {
  CHECK(parse_safetensors(safetensors_header({}, {{"format", "pt"}})).ok());
  CHECK(parse_safetensors(safetensors_header({}, {})).ok());
}

TEST_CASE("a file cut at any byte is refused") {
  const std::vector<Tensor> tensors = {{"a", {4}, 0, 4}};
  const std::string file = safetensors_header(tensors, {}) + std::string(16, 'x');
  REQUIRE(parse_safetensors(file).ok());
  for (std::size_t size = 0; size < file.size(); ++size) CHECK(fault_of(file.substr(0, size)) != "accepted");
  CHECK(contains(fault_of(file + "x"), "17 follow the header: the file is truncated or damaged"));
}

TEST_CASE("headers that lie are refused") {
  const auto one = [](const std::string& shape, const std::string& offsets, std::size_t data) {
    return fault_of(
        file_of(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data));
  };
  CHECK(one("[2]", "[0,8]", 8) == "accepted");
  CHECK(contains(one("[2]", "[0,8]", 4), "outside of the data's 4 bytes"));
  CHECK(contains(one("[2]", "[8,0]", 8), "outside of the data"));
  CHECK(contains(one("[1]", "[2,6]", 8), "does not begin where the one before it ends"));
  CHECK(contains(one("[1]", "[4,8]", 8), "does not begin where the one before it ends"));
  CHECK(contains(one("[3]", "[0,8]", 8), "does not fill its data_offsets"));
  CHECK(contains(one("[4611686018427387904,4,2]", "[0,8]", 8), "does not fill its data_offsets"));
  CHECK(contains(one("[4294967296,4294967296]", "[0,0]", 0), "does not fill its data_offsets"));
  CHECK(contains(one("[18446744073709551615]", "[0,8]", 8), "does not fill its data_offsets"));
  CHECK(contains(one("[-2]", "[0,8]", 8), "invalid shape"));
  CHECK(contains(one("[2.0]", "[0,8]", 8), "invalid shape"));
  CHECK(contains(one("2", "[0,8]", 8), "invalid shape"));
  CHECK(contains(one("[2]", "[0]", 8), "invalid data_offsets"));
  CHECK(contains(one("[2]", "[0,18446744073709551616]", 8), "invalid data_offsets"));
}

TEST_CASE("a header of 100,000,000 bytes is waited for, a longer one is not believed") {
  const std::string largest("\x00\xe1\xf5\x05\0\0\0\0", 8), larger("\x01\xe1\xf5\x05\0\0\0\0", 8);
  CHECK(contains(fault_of(largest + "{}"), "file ends within the header: truncated"));
  CHECK(contains(fault_of(larger + "{}"), "would have 100000001 bytes: not a safetensors file"));
}

TEST_CASE("a shape has 16 dimensions at most") {
  auto with_dimensions = [](int count) {
    std::string shape = "1";
    for (int i = 1; i < count; ++i) shape += ",1";
    return fault_of(file_of(R"({"t":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[0,4]}})", 4));
  };
  CHECK(with_dimensions(16) == "accepted");
  CHECK(contains(with_dimensions(17), "invalid shape"));
}

TEST_CASE(
    "a batch norm's count of steps is passed over where PyTorch writes it, and nothing else of its type") {
  const auto counted = [](const std::string& name, const std::string& shape, const std::string& offsets) {
    return fault_of(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},")" + name +
                                R"(":{"dtype":"I64","shape":)" + shape + R"(,"data_offsets":)" + offsets +
                                "}}",
                            12));
  };
  CHECK(counted("bn1.num_batches_tracked", "[]", "[4,12]") == "accepted");
  CHECK(contains(counted("bn1.num_batches_tracked", "[2]", "[4,12]"), "does not fill its data_offsets"));
  CHECK(contains(counted("bn1.weight", "[]", "[4,12]"), "has dtype \"I64\", wanted \"F32\""));
}

TEST_CASE("overlaps, repeated names, other types and odd structure are refused") {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK(contains(fault_of(file_of("{" + a + "," + a + "}", 4)), "its header repeats /a"));
  CHECK(contains(fault_of(file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4)),
                 "does not begin where the one before it ends"));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8)),
                 "has dtype \"F64\", wanted \"F32\""));
  CHECK(contains(fault_of(file_of(R"({"a":{"dtype":"F32"}})", 0)), "is not described by"));
  CHECK(contains(fault_of(file_of(R"({"__metadata__":{"a":1}})", 0)), "something else than strings"));
  CHECK(contains(fault_of(file_of("[]", 0)), "not a JSON object"));
  CHECK(contains(fault_of(file_of("{", 0)), "its header is not JSON"));
  CHECK(contains(fault_of(std::string(8, '\xff') + "{}"), "not a safetensors file"));
}

}  // namespace
}  // namespace dtrun::worker::safetensors_test
