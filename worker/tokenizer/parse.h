// Tokenizer files as a TokenizerSpec: Hugging Face's tokenizer.json, or GPT-2's vocab.json with its
// merges.txt. Parts of a file that would change ids and are not implemented are refused by name. Pure.
#pragma once

#include <string_view>

#include "proto/core/status.h"
#include "worker/tokenizer/spec.h"

namespace dtrun::worker {

// More tokens than any tokenizer has.
inline constexpr int kMostTokens = 1 << 22;
// More bytes than any added token has.
inline constexpr std::size_t kLongestAddedToken = 1024;

// Model BPE; pre-tokenizer ByteLevel, or a Split by a known pattern before it. Failures have EX_NOINPUT and
// do not name the file.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view text);

// vocab.json: {"token": id, …}; merges.txt: "a b" a line, behind a first line "#version: …". <|endoftext|> is
// a special token.
Result<TokenizerSpec> parse_vocab_and_merges(std::string_view vocab, std::string_view merges);

}  // namespace dtrun::worker
