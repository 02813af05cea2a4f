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

// The known pattern that a tokenizer.json writes as this text; nothing for an unknown one.
std::optional<Words> words_of_pattern(std::string_view pattern);

// A compiled pattern. Any thread may use it, each with a Matcher of its own.
class Pattern {
 public:
  // Throws WorkerError, EX_SOFTWARE, if PCRE2 does not accept it.
  explicit Pattern(const char* pattern);
  ~Pattern();
  Pattern(const Pattern&) = delete;

 private:
  friend class Matcher;
  pcre2_real_code_8* code_ = nullptr;
  bool jit_ = false;  // false on systems that forbid executable memory
};

struct Match {
  std::size_t begin = 0, end = 0;
};

class Matcher {
 public:
  // REQUIRES: the pattern outlives the matcher.
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

// Behind each match of this pattern a word of every known pattern ends, whatever precedes it, and the next
// word begins, whatever follows: the end of letters or digits in front of another character. A long text can
// therefore be cut there, and each part encoded by itself.
const Pattern& word_end_pattern();

}  // namespace dtrun::worker
