#include "tests/bench/jobs.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/config/config.h"

namespace dtrun::worker::cuda {

Job job_of(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw WorkerError(kExitNoInput, file + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const Result<JobConfig> config = parse_config(text, file, {});
  if (!config.ok()) throw WorkerError(config.status().exit_code(), config.status().message());
  const Result<DatasetFacts> data = check_dataset(config.value().data);
  if (!data.ok()) throw WorkerError(data.status().exit_code(), data.status().message());
  return {file.substr(file.rfind('/') + 1), make_program(config.value(), data.value().spec),
          config.value().train.micro_batch_size};
}

Schedule schedule_of(const Job& job, const std::function<bool(const MatmulShape&)>& can) {
  const Plan plan = make_plan(job.program, job.samples, plan_for_gpu(job.program.bf16));
  return make_schedule(job.program, plan, job.samples, {.bf16 = job.program.bf16, .multiplies = can});
}

}  // namespace dtrun::worker::cuda
