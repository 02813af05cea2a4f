// Whether this machine can do what train.bf16 asks for; for who checks a job, and for who computes.
#pragma once

#include <string>

namespace dtrun::worker {

// Its processor multiplies bfloat16: it has AVX512_BF16, as all with AMX have.
bool processor_has_bf16();

// Why a job with train.bf16 is refused on this machine, and the way out.
std::string bf16_refusal();

}  // namespace dtrun::worker
