// A tokenizer as its file describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrun::worker {

// How text falls into words before bytes are merged within each.
enum class Words : std::uint8_t {
  kGpt2,    // GPT-2's own pattern
  kLlama3,  // Llama 3's
  kQwen2,   // Qwen 2's: Llama 3's, but with each digit by itself
};

struct Merge {
  std::int32_t left = 0, right = 0, result = 0;
};

// A piece of text that is one token wherever it stands, such as <|endoftext|>.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for only in what the others leave
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // bytes by id; empty: there is no such token
  std::vector<Merge> merges;        // the first goes first
  std::vector<AddedToken> added;
  Words words = Words::kGpt2;
  bool add_prefix_space = false;  // a text that does not begin with a space gets one
  bool ignore_merges = false;     // a word that is a token is that token, whatever the merges make of it
};

}  // namespace dtrun::worker
