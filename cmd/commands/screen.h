// A text that is shown again and again in the same place of a terminal. Pure: makes the bytes to be written;
// nothing has to be restored afterwards, whatever ends the program.
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
  // What puts `text` (whole lines) in the place of the text before. Lines that are too long end in "…", and
  // so does a text with too many: one that wraps or scrolls could not be replaced.
  std::string show(const std::string& text, ScreenSize size);

 private:
  ScreenSize size_;
  int lines_ = 0;  // that are there, the cursor is below them
};

}  // namespace dtrun::cmd
