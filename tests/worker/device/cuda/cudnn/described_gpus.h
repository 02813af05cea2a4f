// GPUs that are described to cuDNN, so that it can plan for them where there is none.
#pragma once

#include <string>
#include <vector>

#include "worker/device/cuda/cudnn/plan.h"
#include "worker/device/cuda/libraries/cudnn.h"

namespace dtrun::test {

// cuDNN with the driver of no_gpu_driver.cc, which it takes for the machine's; null where cuDNN is not
// installed.
const worker::cuda::Cudnn* cudnn_without_gpu();

worker::cuda::PlanDevice a100();
worker::cuda::PlanDevice h100();
worker::cuda::PlanDevice h200();

}  // namespace dtrun::test
