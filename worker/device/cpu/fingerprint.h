// Names everything on this machine's processor that the bits of a program's results depend on.
#pragma once

#include <string>

#include "worker/model/program.h"

namespace dtrun::worker {

// The arithmetic that carries out this program, as far as it differs between kinds of processors. Two
// machines with the same text give the same bits. "cpu, fp32 1"; with bf16 "cpu, fp32 1, oneDNN 3.6.2 with
// AVX512_CORE_AMX, bf16 by AMX". A processor without fused multiply-add, which no lane computes on, has a
// text of its own, so that a coordinator turns its node away before that fails in a job of others.
std::string cpu_fingerprint(const Program& program);

}  // namespace dtrun::worker
