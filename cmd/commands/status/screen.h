// A text that is shown again and again in the same place of a terminal. Pure: makes the bytes to be written.
// Nothing has to be restored afterwards, however the program ends.
#pragma once

#include <string>

namespace dtrun::cmd {

struct ScreenSize {
  int rows = 24;
  int columns = 80;
  bool operator==(const ScreenSize&) const = default;
};

class Screen {
 public:
  // The bytes that put `text` (whole lines) in the place of the text before. A line that is too long ends in
  // "…", and so does a text with too many lines: if it wrapped or scrolled, it could not be replaced.
  std::string show(const std::string& text, ScreenSize size);

 private:
  ScreenSize size_;
  int lines_ = 0;  // shown now; the cursor is below them
};

}  // namespace dtrun::cmd
