// Byte-level byte-pair encoding, as GPT-2 has it: text to the ids that Hugging Face's `tokenizers` finds
// (without those that its post-processor adds), and back. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "worker/tokenizer/merge.h"
#include "worker/tokenizer/spec.h"
#include "worker/tokenizer/words.h"

namespace dtrun::worker {

inline constexpr char kEndOfText[] = "<|endoftext|>";

// Immutable: any thread may use it, each with an Encoder of its own.
class Tokenizer {
 public:
  // REQUIRES: spec comes from worker/tokenizer/parse.h.
  explicit Tokenizer(TokenizerSpec spec);

  int size() const { return static_cast<int>(spec_.tokens.size()); }  // every id is below it
  // Empty if no token has this id, also for an id out of range.
  std::string_view bytes_of(std::int32_t id) const;
  // The added token with this content, or else the vocabulary's token.
  std::optional<std::int32_t> id_of(const std::string& content) const;
  const TokenizerSpec& spec() const { return spec_; }

 private:
  friend class Encoder;

  // An added token in a text.
  struct TokenMatch {
    std::size_t begin = 0, end = 0;
    std::int32_t id = 0;
  };
  // Finds the first of several added tokens in a text, and the longest of those that begin there.
  class Finder {
   public:
    Finder(const std::vector<AddedToken>& added, bool normalized);
    std::optional<TokenMatch> find(std::string_view text, std::size_t from) const;
    // Whether an added token would be cut in two at `place`, or ends there: the text behind one may get a
    // prefix.
    bool reaches(std::string_view text, std::size_t place) const;

   private:
    std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
    std::size_t longest_ = 0;
    bool none_ = true;
  };

  const TokenizerSpec spec_;
  const MergeTable merges_;
  std::array<std::int32_t, 256> of_byte_{};
  std::unordered_map<std::string, std::int32_t> id_of_;
  const Finder first_, second_;
  const Pattern& pattern_;
};

// One for each thread. It caches the ids of words in a table of fixed size.
class Encoder {
 public:
  // REQUIRES: the tokenizer outlives the encoder.
  explicit Encoder(const Tokenizer& tokenizer);

  // Adds the ids of `text` to `ids`. begins: `text` is the beginning of a text, not the part behind a cut.
  // REQUIRES: text is UTF-8 (proto/core/utf8.h), and has fewer than 2^31 bytes.
  void encode(std::string_view text, bool begins, std::vector<std::int32_t>& ids);

  // The first place at or behind `from` at which the text can be cut: its two parts, encoded by themselves,
  // have the ids of the whole. Nothing if there is no such place before the text's end. `from` may lie within
  // a character.
  // REQUIRES: text is UTF-8.
  std::optional<std::size_t> cut(std::string_view text, std::size_t from);

 private:
  static constexpr std::size_t kRememberedBytes = 30, kRememberedIds = 8, kRemembered = 1 << 15;
  // A word of at most 30 bytes that is at most 8 tokens, in a line of the cache.
  struct alignas(64) Word {
    std::array<char, kRememberedBytes> bytes{};  // zeros behind the word
    std::uint8_t length = 0, count = 0;
    std::array<std::int32_t, kRememberedIds> ids{};
  };

  void encode_between(std::string_view text, bool begins, std::vector<std::int32_t>& ids);
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids);
  void merge_word(std::string_view word);  // into word_

  const Tokenizer& tokenizer_;
  Matcher words_, word_ends_;
  Merger merger_;
  std::vector<std::int32_t> word_;
  std::vector<Word> remembered_;
  std::string prefixed_;
};

}  // namespace dtrun::worker
