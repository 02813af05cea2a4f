// Names everything on this machine's processor that the bits of a program's results depend on.
#pragma once

#include <string>

#include "worker/model/program.h"

namespace dtrun::worker {

// For lanes of `capacity` rows: the loops and libraries that carry out this program, as far as they differ
// between kinds of processors. Two machines with the same text give the same bits. "cpu, AVX2 loops, oneDNN
// 2.6.3 with AVX2".
std::string cpu_fingerprint(const Program& program, int capacity);

}  // namespace dtrun::worker
