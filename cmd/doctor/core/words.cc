#include "cmd/doctor/core/words.h"

#include "proto/core/text.h"

namespace dtrun::doctor {

std::string bytes_text(std::int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (value >= 99.5e9) return decimals(value / 1e9, 0) + " GB";
  if (value >= 0.95e9) return decimals(value / 1e9, 1) + " GB";
  return decimals(value / 1e6, value < 9.5e6 ? 1 : 0) + " MB";
}

std::string rate_text(double megabits) {
  if (megabits >= 950) return decimals(megabits / 1000, megabits < 99'500 ? 1 : 0) + " Gbit/s";
  return decimals(megabits, megabits < 9.5 ? 1 : 0) + " Mbit/s";
}

std::string percent_text(double part) { return decimals(100 * part, 0) + " %"; }

std::string milliseconds_text(double milliseconds) {
  return decimals(milliseconds, milliseconds < 9.5 ? 1 : 0) + " ms";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace dtrun::doctor
