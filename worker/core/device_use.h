// The implementations that a device really computes by: some are slower, and a measurement must say which it
// was made with.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dtrun::worker {

struct DeviceUse {
  std::map<std::string, std::string> parts;  // "attention": "cuDNN 9.19.0"
  std::vector<std::string> fallbacks;        // sentences that say what is slower than intended, and why
};

}  // namespace dtrun::worker
