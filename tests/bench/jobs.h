// The GPU work of jobs, for programs that measure its parts by themselves.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "worker/device/cuda/steps.h"
#include "worker/model/program.h"

namespace dtrun::worker::cuda {

struct Job {
  std::string name;  // its file
  Program program;
  int samples;  // of a microbatch
};

// The job of a config.json. Throws WorkerError.
Job job_of(const std::string& file);

// The steps of a lane for a microbatch of the job. `can`: whether the library has an algorithm for a matmul.
Schedule schedule_of(const Job& job, const std::function<bool(const MatmulShape&)>& can);

}  // namespace dtrun::worker::cuda
