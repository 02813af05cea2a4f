// Cuts text into words by one of the known patterns, with PCRE2. Pure.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "worker/tokenizer/spec.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace dtrun::worker {

// The pattern that this text, as a tokenizer.json has it, is; nothing for any other.
std::optional<Words> words_of_pattern(std::string_view pattern);

// A compiled pattern. Any thread may use it, each with a Matcher of its own.
class Pattern {
 public:
  // Throws WorkerError, EX_SOFTWARE, if PCRE2 does not take it.
  explicit Pattern(const char* pattern);
  ~Pattern();
  Pattern(const Pattern&) = delete;

 private:
  friend class Matcher;
  pcre2_real_code_8* code_ = nullptr;
  bool jit_ = false;  // some systems let nobody make code
};

struct Match {
  std::size_t begin = 0, end = 0;
};

class Matcher {
 public:
  // REQUIRES: the pattern outlives it.
  explicit Matcher(const Pattern& pattern);
  ~Matcher();
  Matcher(const Matcher&) = delete;

  // The first match in `text` from `from` on. Throws WorkerError, EX_SOFTWARE, where PCRE2 gives up.
  // REQUIRES: text is UTF-8, and `from` the beginning of a character in it or its end.
  std::optional<Match> find(std::string_view text, std::size_t from);

 private:
  const Pattern& pattern_;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

const Pattern& pattern_of(Words words);

// Behind each of its matches a word of every known pattern ends, whatever stands before it, and the next one
// begins, whatever follows: at the end of letters or digits behind which something else stands. So a long
// text can be cut there, and each part encoded by itself.
const Pattern& word_end_pattern();

}  // namespace dtrun::worker
