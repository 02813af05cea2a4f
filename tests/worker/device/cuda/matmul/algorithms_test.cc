// The table of algorithms: rows that were written are read back, and no others are accepted.
#include "worker/device/cuda/matmul/algorithms.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

const std::string kPlatform = "NVIDIA H200, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0";
const std::string kSection = "[" + kPlatform + "]\n";
constexpr AlgorithmWords kWords{0x1f, 0, 0xfedcba9876543210, 3, 0, 0, 0, 7};
const std::string kHex =
    "000000000000001f 0000000000000000 fedcba9876543210 0000000000000003 "
    "0000000000000000 0000000000000000 0000000000000000 0000000000000007";

// Each field other than its default somewhere, ascending.
std::vector<MatmulShape> shapes() {
  return {
      {.m = 24, .n = 16, .k = 40, .a_stride = 40, .b_stride = 16, .c_stride = 16},
      {.m = 24, .n = 16, .k = 40, .a_stride = 40, .b_stride = 16, .c_stride = 16, .add = true},
      {.m = 24,
       .n = 16,
       .k = 40,
       .a_stride = 40,
       .b_stride = 16,
       .c_stride = 16,
       .bf16 = true,
       .wide = true,
       .epilogue = Epilogue::kRowSums,
       .c_alignment = 8},
      {.m = 24,
       .n = 16,
       .k = 40,
       .a_transposed = true,
       .a_stride = 24,
       .b_stride = 24,
       .c_stride = 20,
       .bf16 = true,
       .epilogue = Epilogue::kBiasGelu,
       .a_alignment = 1,
       .b_alignment = 2,
       .bias_alignment = 4},
      {.m = 16384,
       .n = 2304,
       .k = 768,
       .b_transposed = true,
       .a_stride = 768,
       .b_stride = 768,
       .c_stride = 2304,
       .bf16 = true,
       .epilogue = Epilogue::kBias},
  };
}

std::string refusal(const std::string& text) {
  try {
    parse_algorithms(text, "table.txt");
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == kExitSoftware);
    return error.what();
  }
  return "";
}

TEST_CASE("rows are read back as they were written, with every field of a shape") {
  std::string text = "# a comment\n\n" + kSection;
  AlgorithmWords words = kWords;
  for (const MatmulShape& shape : shapes()) {
    ++words[0];
    text += row_of(shape, words) + "   # tile 20\n";
  }
  const AlgorithmTable table = parse_algorithms(text, "table.txt");
  REQUIRE(table.size() == 1);
  const Algorithms& algorithms = table.at(kPlatform);
  REQUIRE(algorithms.size() == shapes().size());
  words = kWords;
  for (const MatmulShape& shape : shapes()) {
    ++words[0];
    CHECK(algorithms.at(shape) == words);
  }
  CHECK(row_of(shapes().back(), kWords) == "16384 2304 768 768 768t 2304 bf16 bias 256/256/256/256 " + kHex);
  CHECK(row_of(shapes()[3], kWords) == "24 16 40 24t 24 20 bf16 bias-gelu 1/2/256/4 " + kHex);
  CHECK(row_of(shapes()[2], kWords) == "24 16 40 40 16 16 bf16>fp32 row-sums 256/256/8/256 " + kHex);
  CHECK(row_of(shapes()[1], kWords) == "24 16 40 40 16 16+ fp32 none 256/256/256/256 " + kHex);
}

TEST_CASE("every epilogue has a name") {
  MatmulShape shape = shapes()[0];
  for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasGelu,
                                  Epilogue::kGeluGradient, Epilogue::kRowSums, Epilogue::kColumnSums}) {
    shape.epilogue = epilogue;
    const AlgorithmTable table = parse_algorithms(kSection + row_of(shape, kWords), "table.txt");
    CHECK(table.at(kPlatform).begin()->first == shape);
  }
}

TEST_CASE("a platform has its own rows, and one that the table lacks has none") {
  const std::string other = platform_name("NVIDIA A100-SXM4-80GB", 8, 0, 108, "13.1.0");
  AlgorithmWords words = kWords;
  words[7] = 8;
  const AlgorithmTable table = parse_algorithms(
      kSection + row_of(shapes()[0], kWords) + "\n" + section_of(other) + "\n" + row_of(shapes()[0], words),
      "table.txt");
  CHECK(table.at(kPlatform).at(shapes()[0]) == kWords);
  CHECK(table.at(other).at(shapes()[0]) == words);
  CHECK(!table.contains(platform_name("NVIDIA H200", 9, 0, 132, "13.1.1")));
  CHECK(platform_name("NVIDIA H200", 9, 0, 132, "13.1.0") == kPlatform);
}

TEST_CASE("a row that is not as it would be written is refused with its line") {
  const std::string good = "24 16 40 40 16 16 fp32 none 256/256/256/256 " + kHex;
  REQUIRE(refusal(kSection + good).empty());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string row = good;
    row.replace(row.find(from), from.size(), to);
    return refusal("# first\n" + kSection + row);
  };
  CHECK(with("24", "0") == "table.txt:3: a row has \"0\", which is no size of a matrix");
  CHECK(with("24", "x24").find("\"x24\", which is no size of a matrix") != std::string::npos);
  CHECK(with("24", "99999999999999999999").find("no size") != std::string::npos);
  CHECK(with("24", "024") == "table.txt:3: a row that would be written \"" + good + "\"");
  CHECK(with("24", " 24").find("would be written") != std::string::npos);
  CHECK(with("40 40", "40 39") == "table.txt:3: a row has a matrix whose rows overlap");
  CHECK(with("16 16", "16 16t").find("\"16t\", which is no distance of rows") != std::string::npos);
  CHECK(with("fp32", "bf16>bf16").find("no type") != std::string::npos);
  CHECK(with("fp32", "tf32").find("no type") != std::string::npos);
  CHECK(with("none", "gelu").find("no epilogue") != std::string::npos);
  CHECK(with("256/256/256/256", "256/256/256").find("no four powers of two") != std::string::npos);
  CHECK(with("256/256/256/256", "256/256/256/512").find("no four powers of two") != std::string::npos);
  CHECK(with("256/256/256/256", "256/24/256/256").find("no four powers of two") != std::string::npos);
  CHECK(with("256/256/256/256", "256/256/256/256/1").find("would be written") != std::string::npos);
  CHECK(with("000000000000001f", "1f").find("no word of an algorithm") != std::string::npos);
  CHECK(with("000000000000001f", "000000000000001g").find("no word of an algorithm") != std::string::npos);
  CHECK(with("000000000000001f", "000000000000001F").find("would be written") != std::string::npos);
  CHECK(with("0000000000000007", "") == "table.txt:3: a row has 16 words, not 17");
  CHECK(with("24", "24 24").find("has 18 words") != std::string::npos);
}

TEST_CASE("rows outside a section, twice or not ascending are refused, and so are sections") {
  const std::string row = row_of(shapes()[0], kWords) + "\n", next = row_of(shapes()[1], kWords) + "\n";
  CHECK(refusal(row) == "table.txt:1: a row before the first section");
  CHECK(refusal(kSection + row + next).empty());
  CHECK(refusal(kSection + row + row).find("table.txt:3: a row that does not come after") == 0);
  CHECK(refusal(kSection + next + row).find("table.txt:3: a row that does not come after") == 0);
  CHECK(refusal(kSection + row + kSection + next) == "table.txt:3: a second section of " + kPlatform);
  for (const std::string section :
       {"[NVIDIA H200]", "[]", "[", "[, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0]",
        "[NVIDIA H200, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0",
        "[NVIDIA H200, compute capability 9.0, 132 SMs, cuBLASLt 13.1.0, cuDNN 9.19.0]",
        "[NVIDIA H200, compute capability 9, 132 SMs, cuBLASLt 13.1.0]",
        "[NVIDIA H200, compute capability 9.0, 0132 SMs, cuBLASLt 13.1.0]"}) {
    CAPTURE(section);
    CHECK(refusal(section + "\n" + row).find("table.txt:1: no section of a GPU and cuBLASLt: [") == 0);
  }
}

TEST_CASE("the hash tells tables apart, and comments are no part of it") {
  const std::string row = row_of(shapes()[0], kWords);
  const auto hash = [](const std::string& text) {
    return hash_of(parse_algorithms(text, "table.txt").at(kPlatform));
  };
  AlgorithmWords words = kWords;
  words[0] ^= 1;
  CHECK(hash(kSection).empty());
  CHECK(hash(kSection + row).size() == 8);
  CHECK(hash(kSection + row) == hash("#\n" + kSection + row + " # 20 us"));
  CHECK(hash(kSection + row) != hash(kSection + row_of(shapes()[0], words)));
  CHECK(hash(kSection + row) != hash(kSection + row_of(shapes()[1], kWords)));
  CHECK(hash(kSection + row) != hash(kSection + row + "\n" + row_of(shapes()[1], kWords)));
}

TEST_CASE("the committed table can be read") {
  CHECK(!committed_algorithms().empty());
  CHECK_NOTHROW(parse_algorithms(committed_algorithms(), kAlgorithmsFile));
}

}  // namespace
}  // namespace dtrun::worker::cuda
