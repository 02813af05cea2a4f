// Shows a line that several agents send alike once. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "proto/core/millis.h"

namespace dtrun::cmd {

class RepeatedWords {
 public:
  // False if another host has said the same within kRemembered. A host may repeat itself.
  bool is_new(int host, const std::string& text, Millis now) {
    while (!said_.empty() && (now - said_.front().at > kRemembered || said_.size() == kMost))
      said_.pop_front();
    const std::size_t key = std::hash<std::string>()(text);
    for (const Said& one : said_)
      if (one.host != host && one.text == key) return false;
    said_.push_back({host, now, key});
    return true;
  }

 private:
  static constexpr Millis kRemembered = 30'000;
  static constexpr std::size_t kMost = 4096;  // whatever hosts say: so little memory
  struct Said {
    int host;
    Millis at;
    std::size_t text;  // its hash
  };
  std::deque<Said> said_;
};

}  // namespace dtrun::cmd
