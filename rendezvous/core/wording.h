// Numbers as people read them.
#pragma once

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

}  // namespace dtrun::rendezvous
