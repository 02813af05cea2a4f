// Whether cuBLASLt multiplies right on this GPU: releases of it have left out the last terms of sums (13.1.1,
// some shapes).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/device/cuda/products.h"
#include "worker/device/cuda/schedule/schedule.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {

// Which products a schedule has, and how often each.
std::map<MatmulShape, int> products_of(const Schedule& schedule);

// A product of ones: the first and the last row must be the number of terms. "" or what is wrong; none if
// there is no room. `workspace`: what the product needs. Waits.
std::optional<std::string> fault_of(const MatmulShape& shape, Products& products, Trial& trial,
                                    void* workspace);

// Each product of the schedule; those for which there is no room are left out. `workspace`: what the largest
// of them needs. Waits. Throws WorkerError with EX_CONFIG if a product is wrong.
void check_products(const Schedule& schedule, Products& products, Trial& trial, void* workspace);

}  // namespace dtrun::worker::cuda
