// Whether cuBLASLt multiplies right on this GPU: releases of it have left out the last terms of sums (13.1.1,
// some shapes).
#pragma once

#include "worker/device/cuda/products.h"
#include "worker/device/cuda/schedule.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// Each product of the schedule, of ones: the first and the last row must be the number of terms. Those for
// which there is no room are left out. `workspace`: what the largest of the products needs. Waits. Throws
// WorkerError with EX_CONFIG if a product is wrong.
void check_products(const Schedule& schedule, Products& products, Trial& trial, void* workspace);

}  // namespace dtrun::worker::cuda
