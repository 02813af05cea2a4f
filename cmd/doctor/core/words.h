// Values as findings say them.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::doctor {

// "64 MB", "1.5 GB": powers of 1000.
std::string bytes_text(std::int64_t bytes);
// "940 Mbit/s", "9.4 Gbit/s"
std::string rate_text(double megabits);
// "12 %"
std::string percent_text(double part);
// "40 ms", "0.2 ms"
std::string milliseconds_text(double milliseconds);

bool is_loopback(const std::string& address);

}  // namespace dtrun::doctor
