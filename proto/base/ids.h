// Random identifiers (members, agents' tags, default run ids) and the name of this host.
#pragma once

#include <string>

namespace dtrun {

// 2*bytes lower-case hex digits from the kernel's random source.
std::string random_id(int bytes = 8);

// This host's name, "localhost" if it has none.
std::string host_name();

}  // namespace dtrun
