// The second stage of a reduction whose first stage left one vector for each block of its grid.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace dtrun::worker::cuda {

// Column c of partials [parts][first_width + second_width] is summed over the parts, in an order that their
// number decides, and overwrites or is added to first[c], or from first_width on second[c - first_width],
// unless that is null.
void sum_partials(cudaStream_t stream, std::size_t parts, const float* partials, bool add, float* first,
                  std::size_t first_width, float* second = nullptr, std::size_t second_width = 0);

}  // namespace dtrun::worker::cuda
