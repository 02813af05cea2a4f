#include "worker/tokenizer/words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

struct KnownPattern {
  Words words;
  // The pattern as files have it, for Oniguruma.
  std::string_view original;
  // The pattern for PCRE2, whose \s includes U+180E, which is no white space since Unicode 6.3.
  const char* pattern;
};

#define DTRUN_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define DTRUN_SPACES R"(|\p{White_Space}*[\r\n]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)"
constexpr KnownPattern kKnown[] = {
    {Words::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+)"
     R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)"},
    {Words::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     DTRUN_CONTRACTIONS
     R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*)" DTRUN_SPACES},
    {Words::kQwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     DTRUN_CONTRACTIONS
     R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*)" DTRUN_SPACES}};

// A run of spaces can be as long as a text, and PCRE2 may backtrack in it.
constexpr std::size_t kLargestStack = std::size_t{16} << 20;

WorkerError fault_of_pcre2(const std::string& what, int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {kExitSoftware, what + ": " + reinterpret_cast<const char*>(text.data())};
}

}  // namespace

std::optional<Words> words_of_pattern(std::string_view pattern) {
  const auto* known = std::ranges::find(kKnown, pattern, &KnownPattern::original);
  if (known == std::end(kKnown)) return std::nullopt;
  return known->words;
}

Pattern::Pattern(const char* pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                        &error, &at, nullptr);
  if (code_ == nullptr) throw fault_of_pcre2(std::string("PCRE2 does not take ") + pattern, error);
  jit_ = pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE) == 0;
}

Pattern::~Pattern() { pcre2_code_free(code_); }

Matcher::Matcher(const Pattern& pattern)
    : pattern_(pattern),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(std::size_t{32} << 10, kLargestStack, nullptr)) {
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

Matcher::~Matcher() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
  pcre2_jit_stack_free(stack_);
}

std::optional<Match> Matcher::find(std::string_view text, std::size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto run = pattern_.jit_ ? pcre2_jit_match : pcre2_match;
  const int found = run(pattern_.code_, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data_, context_);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) throw fault_of_pcre2("a text cannot be cut into words", found);
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data_);
  return Match{.begin = at[0], .end = at[1]};
}

const Pattern& pattern_of(Words words) {
  static const Pattern gpt2(kKnown[0].pattern);
  static const Pattern llama3(kKnown[1].pattern);
  static const Pattern qwen2(kKnown[2].pattern);
  return words == Words::kQwen2 ? qwen2 : words == Words::kLlama3 ? llama3 : gpt2;
}

const Pattern& word_end_pattern() {
  static const Pattern pattern(R"([\p{L}\p{N}](?=[^\p{L}\p{N}]))");
  return pattern;
}

}  // namespace dtrun::worker
