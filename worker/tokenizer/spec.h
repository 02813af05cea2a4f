// A tokenizer as its file describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::worker {

// The pattern that cuts text into words; bytes are merged within each word.
enum class Words : std::uint8_t {
  kGpt2,    // GPT-2's own pattern
  kLlama3,  // Llama 3's pattern
  kQwen2,   // Qwen 2's pattern: Llama 3's, but with each digit by itself
};

struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

// A piece of text that is one token wherever it stands, such as <|endoftext|>.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for only in the text between the other added tokens
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // bytes by id; empty: no token has the id
  std::vector<Merge> merges;        // in the order of their priority
  std::vector<AddedToken> added;
  Words words = Words::kGpt2;
  bool add_prefix_space = false;  // a text that does not begin with a space gets one
  bool ignore_merges = false;     // a word that is a token is encoded as that token, without merges
};

}  // namespace dtrun::worker
