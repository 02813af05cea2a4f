// The CUDA support of this build's workers: used when a job is checked, and when it is computed.
#pragma once

#include <string>

namespace dtrun::worker {

// The version of CUDA that this build was made with, 13000 for 13.0; 0: without CUDA.
int cuda_of_this_build();

// The reason why a worker that was built for this version of CUDA, or for none (0), cannot train on any GPU;
// empty: it can.
std::string cuda_refusal(int built_for);

}  // namespace dtrun::worker
