#include "proto/core/colour.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "proto/core/utf8.h"

namespace dtrun {
namespace {

constexpr char kRed[] = "\x1b[1;31m", kCyan[] = "\x1b[36m", kPlain[] = "\x1b[0m";

bool is_set(const char* value) { return value != nullptr && *value != '\0'; }

// The words that begin and end a hint in our messages; an empty end is the end of the line.
struct Opener {
  const char* text;
  const char* end;
};
constexpr Opener kOpeners[] = {
    {"did you mean ", "?"}, {"(dtrun ", ")"},    {"(see ", ")"},       {"; choose ", ""},
    {"; elsewhere: ", ""},  {"; end ", ""},      {"; fewer ", ""},     {"; free some ", ""},
    {"; give ", ""},        {"; name ", ""},     {"; remove it ", ""}, {"; set ", ""},
    {"; start ", ""},       {". Start ", ""},    {"; use ", ""},       {"; wait ", ""},
    {": start it ", ""},    {": name one ", ""},
};

// The first hint at or after `from`, as [begin, end); begin npos: none.
std::pair<std::size_t, std::size_t> next_hint(std::string_view line, std::size_t from) {
  std::size_t begin = line.npos, end = line.size();
  for (const Opener& opener : kOpeners) {
    const std::size_t at = line.find(opener.text, from);
    if (at >= begin) continue;
    const bool separator = std::string_view(";.:").find(*opener.text) != std::string_view::npos;
    begin = at + (separator ? 2 : 0);
    const std::size_t close = *opener.end == '\0' ? line.npos : line.find(opener.end, at);
    end = close == line.npos ? line.size() : close + 1;
  }
  return {begin, end};
}

std::string painted(std::string_view text, const char* colour) {
  if (*colour == '\0' || text.empty()) return std::string(text);
  return colour + std::string(text) + kPlain;
}

std::string line(std::string_view text, const char* colour) {
  std::string out;
  std::size_t at = 0;
  for (auto hint = next_hint(text, at); hint.first < text.size(); hint = next_hint(text, at)) {
    out += painted(text.substr(at, hint.first - at), colour);
    out += painted(text.substr(hint.first, hint.second - hint.first), kCyan);
    at = hint.second;
  }
  return out + painted(text.substr(at), colour);
}

}  // namespace

bool wants_colour(ColourMode mode, const std::function<const char*(const char*)>& environment,
                  bool terminal) {
  if (mode != ColourMode::kAuto) return mode == ColourMode::kAlways;
  if (is_set(environment("NO_COLOR"))) return false;
  const char* force = environment("CLICOLOR_FORCE");
  if (is_set(force) && std::string_view(force) != "0") return true;
  const char* term = environment("TERM");
  return terminal && (term == nullptr || std::string_view(term) != "dumb");
}

std::string Palette::hint(std::string_view text) const {
  return coloured_ ? painted(text, kCyan) : std::string(text);
}

std::string Palette::error(std::string_view text) const { return lines(text, kRed); }

std::string Palette::message(std::string_view text) const { return lines(text, ""); }

// Colours each line by itself: text after a newline (a prefix, a bar) must not inherit the colour.
std::string Palette::lines(std::string_view text, const char* colour) const {
  if (!coloured_) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += line(text.substr(at, end - at), colour) + (end < text.size() ? "\n" : "");
    at = end + 1;
  }
  return out;
}

std::string painted_line(std::string_view line) {
  std::string out;
  std::string_view last = kPlain;
  while (!line.empty()) {
    constexpr std::string_view kOwn[] = {kRed, kCyan, kPlain};
    const auto* own = std::ranges::find_if(kOwn, [&](std::string_view one) { return line.starts_with(one); });
    if (own != std::end(kOwn)) last = *own;
    const std::string_view piece = own != std::end(kOwn) ? *own : line.substr(0, line.find('\x1b', 1));
    out += own != std::end(kOwn) ? std::string(piece) : printable(piece);
    line.remove_prefix(piece.size());
  }
  return last == kPlain ? out : out + kPlain;
}

}  // namespace dtrun
