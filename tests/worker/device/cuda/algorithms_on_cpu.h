// The table of algorithms, as a test wants it: by itself it is empty.
#pragma once

#include <string>

namespace dtrun::worker::cuda {

// What committed_algorithms() gives in a program with the stand-ins. Not while a device is made.
inline std::string table_on_cpu;

}  // namespace dtrun::worker::cuda
