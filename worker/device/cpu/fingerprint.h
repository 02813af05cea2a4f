// What the bits of a program's results on this machine's processor follow from.
#pragma once

#include <string>

#include "worker/model/program.h"

namespace dtrun::worker {

// For lanes of `capacity` rows: the loops and libraries that carry out this program, as far as one kind of
// processor has others than another one. Two machines whose texts are the same give the same bits.
// "cpu, AVX2 loops, oneDNN 2.6.3 with AVX2".
std::string cpu_fingerprint(const Program& program, int capacity);

}  // namespace dtrun::worker
