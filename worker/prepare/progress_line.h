// The progress of a preparation, in one line. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::worker {

struct PrepareProgress {
  std::uint64_t bytes = 0, all_bytes = 0;  // encoded, to encode
  std::uint64_t tokens = 0;
  double seconds = 0;
};

// " 37 %  412 MB of 1.1 GB, 98,000,000 tokens, 52 MB/s, 13 s left"
std::string progress_line(const PrepareProgress& progress);

}  // namespace dtrun::worker
