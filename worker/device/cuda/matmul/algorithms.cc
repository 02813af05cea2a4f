#include "worker/device/cuda/matmul/algorithms.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

#include "proto/core/exit_codes.h"
#include "proto/core/number.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

constexpr std::string_view kEpilogues[] = {"none",          "bias",     "bias-relu",  "bias-gelu",
                                           "gelu-gradient", "row-sums", "column-sums"};

std::string hexadecimal(std::uint64_t number, int digits) {
  char text[17];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(number));
  return text;
}

bool take_end(std::string_view* text, std::string_view end) {
  if (!text->ends_with(end)) return false;
  text->remove_suffix(end.size());
  return true;
}

// Reads the words of a row. Accepts more than row_of() writes, so the caller compares.
class RowReader {
 public:
  explicit RowReader(const std::string& row) {
    std::istringstream words(row);
    words_.assign(std::istream_iterator<std::string>(words), {});
  }

  // "", or the fault.
  std::string read(MatmulShape* shape, AlgorithmWords* algorithm) {
    if (words_.size() != 9 + algorithm->size())
      return "has " + std::to_string(words_.size()) + " words, not 17";
    MatmulShape& s = *shape;
    size(&s.m);
    size(&s.n);
    size(&s.k);
    stride(&s.a_stride, "t", &s.a_transposed);
    stride(&s.b_stride, "t", &s.b_transposed);
    stride(&s.c_stride, "+", &s.add);
    type(&s);
    epilogue(&s.epilogue);
    alignments({&s.a_alignment, &s.b_alignment, &s.c_alignment, &s.bias_alignment});
    for (std::uint64_t& word : *algorithm) {
      const std::string_view text = next();
      const auto value = parse_number<std::uint64_t>(text, 16);
      if (!value || text.size() != 16) fail("no word of an algorithm");
      word = value.value_or(0);
    }
    if (fault_.empty() && (s.a_stride < (s.a_transposed ? s.m : s.k) ||
                           s.b_stride < (s.b_transposed ? s.k : s.n) || s.c_stride < s.n))
      return "has a matrix whose rows overlap";
    return fault_;
  }

 private:
  std::string_view next() { return words_[at_++]; }
  void fail(const char* what) {
    if (fault_.empty()) fault_ = "has \"" + words_[at_ - 1] + "\", which is " + what;
  }

  void size(std::int64_t* to) {
    *to = parse_number<std::int64_t>(next()).value_or(0);
    if (*to < 1) fail("no size of a matrix");
  }
  void stride(std::int64_t* to, std::string_view mark, bool* marked) {
    std::string_view text = next();
    *marked = take_end(&text, mark);
    *to = parse_number<std::int64_t>(text).value_or(0);
    if (*to < 1) fail("no distance of rows");
  }
  void type(MatmulShape* shape) {
    const std::string_view text = next();
    shape->bf16 = text.starts_with("bf16");
    shape->wide = text == "bf16>fp32";
    if (text != "fp32" && text != "bf16" && text != "bf16>fp32") fail("no type");
  }
  void epilogue(Epilogue* to) {
    const auto* const found = std::ranges::find(kEpilogues, next());
    if (found == std::end(kEpilogues)) return fail("no epilogue");
    *to = static_cast<Epilogue>(found - std::begin(kEpilogues));
  }
  void alignments(const std::array<int*, 4>& to) {
    std::istringstream text{std::string(next())};
    for (int* const alignment : to) {
      std::string part;
      std::getline(text, part, '/');
      *alignment = parse_number<int>(part).value_or(0);
      if (*alignment < 1 || *alignment > 256 || !std::has_single_bit(static_cast<unsigned>(*alignment)))
        return fail("no four powers of two up to 256");
    }
  }

  std::vector<std::string> words_;
  std::size_t at_ = 0;
  std::string fault_;
};

// "" if `name` is not as platform_name() writes it.
std::string platform_of_section(const std::string& line) {
  const std::string name = line.size() > 2 ? line.substr(1, line.size() - 2) : "";
  const std::size_t at = name.find(", compute capability ");
  int major = 0, minor = 0, processors = 0;
  char version[32] = "";
  if (at == 0 || at == std::string::npos ||
      std::sscanf(name.c_str() + at, ", compute capability %d.%d, %d SMs, cuBLASLt %31[0-9.]", &major, &minor,
                  &processors, version) != 4)
    return "";
  return section_of(platform_name(name.substr(0, at), major, minor, processors, version)) == line ? name : "";
}

std::string without_comment(const std::string& line) {
  const std::string text = line.substr(0, line.find('#'));
  const std::size_t last = text.find_last_not_of(' ');
  return last == std::string::npos ? "" : text.substr(0, last + 1);
}

}  // namespace

std::string platform_name(const std::string& gpu, int major, int minor, int processors,
                          const std::string& cublas_lt) {
  return gpu + ", compute capability " + std::to_string(major) + "." + std::to_string(minor) + ", " +
         std::to_string(processors) + " SMs, cuBLASLt " + cublas_lt;
}

AlgorithmTable parse_algorithms(std::string_view text, const std::string& source) {
  AlgorithmTable table;
  Algorithms* section = nullptr;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto refuse = [&](const std::string& why) {
      throw WorkerError(kExitSoftware, source + ":" + std::to_string(number) + ": " + why);
    };
    const std::string words = without_comment(line);
    if (words.empty()) continue;
    if (words.front() == '[') {
      const std::string platform = platform_of_section(words);
      if (platform.empty()) refuse("no section of a GPU and cuBLASLt: " + words);
      const auto [added, is_new] = table.try_emplace(platform);
      if (!is_new) refuse("a second section of " + platform);
      section = &added->second;
      continue;
    }
    if (section == nullptr) refuse("a row before the first section");
    MatmulShape shape;
    AlgorithmWords algorithm{};
    const std::string fault = RowReader(words).read(&shape, &algorithm);
    if (!fault.empty()) refuse("a row " + fault);
    const std::string written = row_of(shape, algorithm);
    if (words != written) refuse("a row that would be written \"" + written + "\"");
    if (!section->empty() && !(section->rbegin()->first < shape))
      refuse("a row that does not come after the one before it: rows ascend, and no shape has two");
    section->emplace(shape, algorithm);
  }
  return table;
}

std::string section_of(const std::string& platform) { return "[" + platform + "]"; }

std::string row_of(const MatmulShape& s, const AlgorithmWords& algorithm) {
  std::ostringstream row;
  row << s.m << ' ' << s.n << ' ' << s.k << ' ' << s.a_stride << (s.a_transposed ? "t" : "") << ' '
      << s.b_stride << (s.b_transposed ? "t" : "") << ' ' << s.c_stride << (s.add ? "+" : "") << ' '
      << (!s.bf16  ? "fp32"
          : s.wide ? "bf16>fp32"
                   : "bf16")
      << ' ' << kEpilogues[static_cast<std::size_t>(s.epilogue)] << ' ' << s.a_alignment << '/'
      << s.b_alignment << '/' << s.c_alignment << '/' << s.bias_alignment;
  for (const std::uint64_t word : algorithm) row << ' ' << hexadecimal(word, 16);
  return row.str();
}

std::string hash_of(const Algorithms& algorithms) {
  if (algorithms.empty()) return "";
  // FNV-1a.
  std::uint32_t hash = 0x811c9dc5;
  for (const auto& [shape, algorithm] : algorithms)
    for (const char c : row_of(shape, algorithm) + "\n")
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hexadecimal(hash, 8);
}

}  // namespace dtrun::worker::cuda
