#include "proto/core/process_stat.h"

#include <array>
#include <cstdlib>
#include <sstream>

namespace dtrun {

// "PID (name) S PPID PGRP SESSION TTY TPGID FLAGS MINFLT CMINFLT MAJFLT CMAJFLT UTIME STIME CUTIME CSTIME
// PRIORITY NICE THREADS ITREAL START VSIZE RSS …": the name may hold spaces and parentheses, so the last ")"
// ends it.
std::optional<ProcessStat> parse_stat(const std::string& text) {
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  ProcessStat stat;
  stat.pid = std::atoi(text.c_str());
  std::istringstream rest(text.substr(close + 1));
  rest >> stat.state;
  std::array<std::int64_t, 21> numbers{};  // from PPID on
  for (std::int64_t& number : numbers) rest >> number;
  if (!rest) return std::nullopt;
  stat.parent = static_cast<int>(numbers[0]);
  stat.group = static_cast<int>(numbers[1]);
  stat.major_faults = numbers[8] + numbers[9];
  stat.own_ticks = numbers[10] + numbers[11];
  stat.cpu_ticks = stat.own_ticks + numbers[12] + numbers[13];
  stat.threads = numbers[16];
  stat.start_ticks = numbers[18];
  stat.virtual_bytes = numbers[19];
  stat.resident_pages = numbers[20];
  return stat;
}

}  // namespace dtrun
