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

// The header of a file in the form of llm.c. REQUIRES: tokens < 2^31.
std::string token_header(std::uint64_t tokens);

}  // namespace dtrun::worker
