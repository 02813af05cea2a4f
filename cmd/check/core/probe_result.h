// Tells whether one host reaches another one at any of some addresses.
#pragma once

#include <string>
#include <vector>

namespace dtrun::cmd {

struct ProbeResult {
  std::string address = {};               // the first of those asked for that is reached; empty: none
  std::string from = {};                  // the own address on the way there
  std::vector<std::string> why_not = {};  // of each that is not, "10.0.0.5: refused"
};

}  // namespace dtrun::cmd
