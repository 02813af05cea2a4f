#include "worker/prepare/progress_line.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "proto/core/text.h"
#include "worker/data/message.h"

namespace dtrun::worker {
namespace {

std::string size_text(double bytes) {
  const char* unit = "kB";
  double value = bytes / 1e3;
  for (const char* larger : {"MB", "GB", "TB"}) {
    if (value < 999.5) break;
    value /= 1e3;
    unit = larger;
  }
  return decimals(value, value < 9.95 ? 1 : 0) + " " + unit;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

std::string progress_line(const PrepareProgress& progress) {
  const auto done = static_cast<double>(progress.bytes), all = static_cast<double>(progress.all_bytes);
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), "%3.0f %%  ", all > 0 ? std::floor(100 * done / all) : 100);
  std::string line = percent.data() + size_text(done) + " of " + size_text(all) + ", " +
                     with_thousands(progress.tokens) + " tokens";
  if (progress.seconds < 0.5 || progress.bytes == 0) return line;
  const double pace = done / progress.seconds;
  return line + ", " + size_text(pace) + "/s, " + time_text((all - done) / pace) + " left";
}

}  // namespace dtrun::worker
