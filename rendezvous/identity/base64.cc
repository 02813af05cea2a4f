#include "rendezvous/identity/base64.h"

namespace dtrun::rendezvous {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::string to_base64url(const unsigned char* bytes, std::size_t size) {
  std::string text;
  unsigned buffer = 0;
  int bits = 0;
  for (std::size_t i = 0; i < size; ++i) {
    buffer = buffer << 8 | bytes[i], bits += 8;
    for (; bits >= 6; bits -= 6) text += kLetters[buffer >> (bits - 6) & 63];
  }
  if (bits > 0) text += kLetters[buffer << (6 - bits) & 63];
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  unsigned buffer = 0;
  int bits = 0;
  for (const char letter : text) {
    const std::size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    buffer = buffer << 6 | static_cast<unsigned>(value), bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(buffer >> bits);
  }
  if (bits == 6 || (buffer & ((1u << bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

}  // namespace dtrun::rendezvous
