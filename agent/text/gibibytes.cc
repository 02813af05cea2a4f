#include "agent/text/gibibytes.h"

#include "proto/core/text.h"

namespace dtrun {
namespace {

std::string gibibytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes) / (1 << 30);
  return decimals(value, value < 99.95 ? 1 : 0);
}

}  // namespace

std::string gibibytes_text(std::uint64_t bytes) { return gibibytes(bytes) + " GiB"; }

std::string gpu_memory_text(std::uint64_t part, std::uint64_t total) {
  const std::uint64_t mebibytes = part >> 20;
  return (mebibytes < 1024 ? std::to_string(mebibytes) + " MiB" : gibibytes(part)) + " of " +
         gibibytes_text(total);
}

}  // namespace dtrun
