#include "worker/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace dtrun::worker {
namespace {

constexpr int kLetters = 256 + 68;  // 68 bytes are not printable

constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<int, 256> letter{};     // code point of a byte
  std::array<int, kLetters> byte{};  // of a code point; -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int letter = is_printable(byte) ? byte : next++;
    alphabet.letter[static_cast<std::size_t>(byte)] = letter;
    alphabet.byte[static_cast<std::size_t>(letter)] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const auto first = static_cast<std::uint8_t>(letters[i]);
    int letter = first;
    if (first >= 0x80) {
      // All letters have at most two bytes in UTF-8.
      if (first < 0xc2 || first > 0xdf || i + 1 == letters.size()) return std::nullopt;
      const char second = letters[++i];
      if ((second & 0xc0) != 0x80) return std::nullopt;
      letter = (first & 0x1f) << 6 | (second & 0x3f);
    }
    if (letter >= kLetters || kAlphabet.byte[static_cast<std::size_t>(letter)] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[static_cast<std::size_t>(letter)]);
  }
  return bytes;
}

std::string letters_of_bytes(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) {
    const int letter = kAlphabet.letter[static_cast<std::uint8_t>(byte)];
    if (letter < 0x80) {
      letters += static_cast<char>(letter);
    } else {
      letters += static_cast<char>(0xc0 | letter >> 6);
      letters += static_cast<char>(0x80 | (letter & 0x3f));
    }
  }
  return letters;
}

}  // namespace dtrun::worker
