// GPT-2's alphabet: each of the 256 bytes is written as one printable character, so that a vocabulary file
// can hold tokens that are not whole characters. The bytes that are printable in Latin-1 stand for
// themselves, the others for the characters from U+0100 on. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrun::worker {

// The bytes that a token of a vocabulary file stands for; nothing if a character is not of the alphabet.
std::optional<std::string> bytes_of_letters(std::string_view letters);

// The bytes as a vocabulary file writes them.
std::string letters_of_bytes(std::string_view bytes);

}  // namespace dtrun::worker
