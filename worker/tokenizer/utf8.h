// Whole characters of UTF-8 out of a stream of bytes. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dtrun::worker {

// For output that people read: a character appears once it is whole, and bytes that cannot become one appear
// as U+FFFD.
class WholeCharacters {
 public:
  // The characters that are whole now.
  std::string take(std::string_view bytes);
  // The rest, at the end of the stream.
  std::string finish();

 private:
  std::string pending_;  // the beginning of a character
};

}  // namespace dtrun::worker
