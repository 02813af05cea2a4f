// Which of its ways a device really computes by: some are slower, and a number that was measured by one shall
// say so.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dtrun::worker {

struct DeviceUse {
  std::map<std::string, std::string> parts;  // "attention": "cuDNN 9.19.0"
  std::vector<std::string> fallbacks;        // what is slower than it was meant to be, and why: sentences
};

}  // namespace dtrun::worker
