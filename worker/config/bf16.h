// Whether this machine can train with train.bf16: used when a job is checked, and when it is computed.
#pragma once

#include <string>

namespace dtrun::worker {

// True if the processor multiplies bfloat16: it has AVX512_BF16, as all processors with AMX have.
bool processor_has_bf16();

// The reason why a job with train.bf16 is refused on this machine, and the remedy.
std::string bf16_refusal();

}  // namespace dtrun::worker
