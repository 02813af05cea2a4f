// Colour in dtrun's own messages: this file decides whether there is any, and holds the palette. Pure. Errors
// are red, hints (did you mean, a way out) are cyan. The words are the same without colour.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dtrun {

enum class ColourMode { kAuto, kAlways, kNever };  // --color
inline constexpr const char* kColourModes[] = {"auto", "always", "never"};

// True if text for one stream has colour; `environment` is getenv. --color beats the environment, and
// NO_COLOR beats CLICOLOR_FORCE. Without any of them a terminal that knows escape sequences has colour
// (no-color.org, bixense.com/clicolors). An empty variable does not count, nor does CLICOLOR_FORCE=0.
bool wants_colour(ColourMode mode, const std::function<const char*(const char*)>& environment, bool terminal);

// Texts may have several lines. A palette without colour returns them unchanged.
class Palette {
 public:
  explicit Palette(bool coloured = false) : coloured_(coloured) {}

  std::string hint(std::string_view text) const;     // all of it
  std::string error(std::string_view text) const;    // red, the hints in it cyan
  std::string message(std::string_view text) const;  // plain, the hints in it cyan

  bool operator==(const Palette&) const = default;

 private:
  std::string lines(std::string_view text, const char* colour) const;

  bool coloured_;
};

// A line that another process has painted with its palette, made fit for a terminal: as by printable(), but
// the sequences of a palette stay. No colour outlives the line.
std::string painted_line(std::string_view line);

}  // namespace dtrun
