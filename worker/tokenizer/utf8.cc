#include "worker/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace dtrun::worker {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

struct Sequence {
  std::size_t length;  // of the character, or of the bytes that cannot begin one; not 0
  enum Kind : std::uint8_t { kWhole, kCut, kInvalid } kind;
};

// REQUIRES: bytes is not empty.
Sequence sequence_at(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const std::uint8_t first = at(0);
  if (first < 0x80) return {1, Sequence::kWhole};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return {1, Sequence::kInvalid};
  // Neither longer than need be, nor a surrogate, nor beyond U+10FFFF.
  const std::uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, Sequence::kCut};
    if (at(i) < (i == 1 ? least : 0x80) || at(i) > (i == 1 ? most : 0xbf)) return {i, Sequence::kInvalid};
  }
  return {length, Sequence::kWhole};
}

}  // namespace

std::optional<std::size_t> invalid_utf8_at(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    std::uint64_t eight = 0;
    if (i + sizeof eight <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const Sequence found = sequence_at(bytes.substr(i, 4));
    if (found.kind != Sequence::kWhole) return i;
    i += found.length;
  }
  return std::nullopt;
}

std::string WholeCharacters::take(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::size_t i = 0;
  while (i < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(i, 4);
    const Sequence found = sequence_at(rest);
    if (found.kind == Sequence::kCut) break;
    text += found.kind == Sequence::kWhole ? rest.substr(0, found.length) : kReplacement;
    i += found.length;
  }
  pending_.erase(0, i);
  return text;
}

std::string WholeCharacters::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? kReplacement : "";
}

}  // namespace dtrun::worker
