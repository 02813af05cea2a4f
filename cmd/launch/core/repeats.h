// What several agents say alike is shown once. Pure.
#pragma once

#include <deque>
#include <string>

#include "proto/core/millis.h"

namespace dtrun::cmd {

class RepeatedWords {
 public:
  // False if another host has said the same within kRemembered. A host may repeat itself.
  bool is_new(int host, const std::string& text, Millis now) {
    while (!said_.empty() && now - said_.front().at > kRemembered) said_.pop_front();
    for (const Said& one : said_)
      if (one.host != host && one.text == text) return false;
    said_.push_back({host, now, text});
    return true;
  }

 private:
  static constexpr Millis kRemembered = 30'000;
  struct Said {
    int host;
    Millis at;
    std::string text;
  };
  std::deque<Said> said_;
};

}  // namespace dtrun::cmd
