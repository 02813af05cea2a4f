// Bytes of memory as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun {

// "61.2 GiB": as GPU makers count their gigabytes.
std::string gibibytes_text(std::uint64_t bytes);

// "61.2 of 140 GiB"
std::string gpu_memory_text(std::uint64_t part, std::uint64_t total);

}  // namespace dtrun
