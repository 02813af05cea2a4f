// What jobs compute on a GPU, for programs that try parts of it out by themselves.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "worker/device/cuda/matmul_shape.h"
#include "worker/device/cuda/schedule/schedule.h"
#include "worker/model/program.h"

namespace dtrun::worker::cuda {

struct Job {
  std::string name;  // its file
  Program program;
  int samples;  // of a microbatch
};

// Of a config.json. Throws WorkerError.
Job job_of(const std::string& file);

// What a lane does for a microbatch of it. `can`: whether the library has an algorithm for a product.
Schedule schedule_of(const Job& job, const std::function<bool(const MatmulShape&)>& can);

}  // namespace dtrun::worker::cuda
