// Token files: .bin shards of 16-bit tokens, little-endian, as the scripts of llm.c write them (a header of
// 256 int32: magic 20240520, version 1, number of tokens) or those of nanoGPT (no header).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "proto/core/status.h"

namespace dtrun::worker {

// The place of a shard's tokens in its file.
struct TokenLayout {
  std::uint64_t begin = 0;   // byte offset of the first token
  std::uint64_t tokens = 0;  // two bytes each
};

inline constexpr std::size_t kTokenHeader = 256 * 4;  // bytes

// Reads the layout from a file's first bytes (kTokenHeader are always enough) and its size. Failures have
// EX_NOINPUT and do not name the file.
Result<TokenLayout> parse_token_header(std::span<const std::uint8_t> beginning, std::uint64_t size);

// Of a file without a header, whether its beginning may be tokens of 16 bits. What other programs write has
// as many bytes, too, and trains: wider values, text. EX_NOINPUT says what it is and what to do.
Status check_kind(std::span<const std::uint8_t> beginning);

// The header of a file in the form of llm.c. REQUIRES: tokens < 2^31.
std::string token_header(std::uint64_t tokens);

}  // namespace dtrun::worker
