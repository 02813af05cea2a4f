// Colour in what dtrun says to people: the one place that decides whether, and the palette. Pure. An error is
// red, a hint (did you mean, a way out) cyan; the words are the same without.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dtrun {

enum class ColourMode { kAuto, kAlways, kNever };  // --color
inline constexpr const char* kColourModes[] = {"auto", "always", "never"};

// For text that goes to one stream; `environment` is getenv. An option beats the environment, NO_COLOR beats
// CLICOLOR_FORCE (both count unless empty; CLICOLOR_FORCE=0 is none), and without any of them a terminal
// that knows escape sequences has colour (no-color.org, bixense.com/clicolors).
bool wants_colour(ColourMode mode, const std::function<const char*(const char*)>& environment, bool terminal);

// The texts may be several lines; a text without hints, or a palette without colour, gives it back as it is.
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

}  // namespace dtrun
