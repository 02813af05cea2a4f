// Numbers in texts. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>

namespace dtrun {

template <typename Number>
std::from_chars_result read_number_at(std::string_view text, Number* number, int base) {
  if constexpr (std::is_floating_point_v<Number>)
    return std::from_chars(text.data(), text.data() + text.size(), *number);
  else
    return std::from_chars(text.data(), text.data() + text.size(), *number, base);
}

// The number that `text` begins with; nothing if there is none, or none that the type holds. No blanks and no
// "+" in front.
template <typename Number>
std::optional<Number> parse_leading_number(std::string_view text, int base = 10) {
  Number number{};
  const bool read = read_number_at(text, &number, base).ec == std::errc();
  return read ? std::optional(number) : std::nullopt;
}

// The same, if nothing follows it.
template <typename Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = read_number_at(text, &number, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace dtrun
