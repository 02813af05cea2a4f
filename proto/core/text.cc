#include "proto/core/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace dtrun {

std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string decimals(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string in_gibibytes(std::uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  if (mebibytes < 1024) return decimals(mebibytes, 1) + " MiB";
  const double gibibytes = mebibytes / 1024;
  return decimals(gibibytes, gibibytes < 99.95 ? 1 : 0) + " GiB";
}

std::string html_escaped(std::string_view text) {
  std::string html;
  for (const char c : text)
    html += c == '&'   ? "&amp;"
            : c == '<' ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  return html;
}

std::string hexadecimal(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

std::string utc_text(std::int64_t seconds, const char* format) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

std::string with_thousands(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string duration_text(double seconds) {
  const long long s = std::llround(std::max(0.0, seconds));
  char text[64];
  if (s < 60) {
    std::snprintf(text, sizeof text, "%lld s", s);
  } else if (s < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", s / 3600, s / 60 % 60);
  }
  return text;
}

std::string time_text(double seconds) {
  return seconds < 59.95 ? decimals(std::max(0.0, seconds), 1) + " s" : duration_text(seconds);
}

std::string seconds_text(Millis duration) {
  const Millis tenths = (duration + 50) / 100;
  const std::string tenth = tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + tenth + " s";
}

std::string whole_seconds_text(Millis duration) {
  return std::to_string(std::max<Millis>(0, (duration + 999) / 1000)) + " s";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text.append(text.empty() ? "" : separator).append(part);
  return text;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<std::string> in_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> lines(rows.size());
  for (std::size_t column = 0; !rows.empty() && column < rows[0].size(); ++column) {
    std::size_t width = 0;
    for (const std::string& line : lines) width = std::max(width, line.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (column > 0) lines[i].resize(width + 2, ' ');
      lines[i] += rows[i][column];
    }
  }
  return lines;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

std::string shortened(std::string_view text, std::size_t length) {
  const auto continues = [](char c) { return (c & 0xc0) == 0x80; };
  std::size_t end = std::min(text.size(), length);
  while (end > 0 && end < text.size() && continues(text[end])) --end;
  return std::string(text.substr(0, end));
}

}  // namespace dtrun
