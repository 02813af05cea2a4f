// Numbers as people read them, and texts that must not get long.
#pragma once

#include <algorithm>
#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// "5 s", "0.5 s"
inline std::string seconds(Millis duration) {
  const Millis tenths = duration / 100;
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
  return text + " s";
}

// "1 node", "2 nodes"
inline std::string count_of(int n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// Its first `length` bytes at most, never half a character of UTF-8.
inline std::string shortened(const std::string& text, std::size_t length) {
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };
  std::size_t end = std::min(text.size(), length);
  while (end > 0 && end < text.size() && continues(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace dtrun::rendezvous
