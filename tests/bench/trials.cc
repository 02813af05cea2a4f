#include "tests/bench/trials.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "proto/core/exit_codes.h"
#include "tests/bench/attention_ways.h"
#include "tests/bench/bit_hash.h"
#include "tests/bench/repeats.h"
#include "tests/bench/weight_ways.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kNoGpu = 77;

struct Request {
  std::string what;
  double seconds = std::numeric_limits<double>::infinity();
  RepeatOptions repeats;
  std::vector<std::string> files;
};

Request request_of(const std::vector<std::string>& arguments) {
  Request request;
  bool good = !arguments.empty();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (i == 0)
      request.what = arguments[i];
    else if (arguments[i] == "--times" && has_value)
      request.repeats.times = std::atoi(arguments[++i].c_str());
    else if (arguments[i] == "--seconds" && has_value)
      request.seconds = std::atof(arguments[++i].c_str());
    else if (arguments[i] == "--busy" && has_value)
      request.repeats.busy_bytes = static_cast<std::size_t>(std::atoll(arguments[++i].c_str()));
    else
      request.files.push_back(arguments[i]);
  }
  good &= request.what == "repeats" || request.what == "attention" || request.what == "weights";
  if (!good || request.files.empty() || request.repeats.times < 1 || request.seconds <= 0)
    throw WorkerError(kExitUsage,
                      "usage: gpu_trials repeats|attention|weights [--times N] [--seconds S] [--busy BYTES] "
                      "CONFIG.json...");
  return request;
}

Json json_of(const std::string& job, const Repeated& repeated) {
  Json line{{"job", job}, {"kind", repeated.kind}, {"what", repeated.what}};
  if (!repeated.by.empty()) line["by"] = repeated.by;
  if (!repeated.skipped.empty()) {
    line["skipped"] = repeated.skipped;
    return line;
  }
  line["times"] = repeated.times;
  line["others"] = repeated.others;
  line["hash"] = hexadecimal(repeated.hash);
  return line;
}

Json json_of(const MeasuredAttention& way) {
  const AttentionShape& s = way.shape;
  Json line{{"samples", s.samples},
            {"heads", s.heads},
            {"tokens", s.tokens},
            {"head_size", s.head_size},
            {"way", way.name}};
  if (!way.why_not.empty()) {
    line["skipped"] = way.why_not;
    return line;
  }
  line["forward_microseconds"] = way.forward;
  line["backward_microseconds"] = way.backward;
  line["forward_flops"] = way.forward_flops;
  line["backward_flops"] = way.backward_flops;
  line["workspace_bytes"] = way.workspace;
  line["times"] = way.times;
  line["others"] = way.others;
  if (!way.fault.empty()) line["fault"] = way.fault;
  return line;
}

class Run {
 public:
  Run(Request request, std::ostream& out, const Timer& timer)
      : request_(std::move(request)), out_(out), timer_(timer) {
    request_.repeats.goes_on = [this] { return goes_on(); };
    for (const std::string& file : request_.files) jobs_.push_back(job_of(file));
  }

  void repeats() {
    for (const Job& job : jobs_) {
      if (goes_on()) {
        TrialGpu gpu(timer_);
        repeat_parts(gpu, job, request_.repeats,
                     [&](const Repeated& repeated) { say(json_of(job.name, repeated)); });
      }
      if (goes_on()) say(json_of(job.name, repeat_microbatch(job, request_.repeats)));
      if (!goes_on()) left_out_.push_back(job.name);
    }
  }

  void attention() {
    TrialGpu gpu(timer_);
    for (const Job& job : jobs_) {
      if (!goes_on()) {
        left_out_.push_back(job.name);
        continue;
      }
      const AttentionResults results = measure_attention(gpu, {job}, request_.repeats.times);
      for (const MeasuredAttention& way : results.ways) say(json_of(way));
      if (results.copied_bytes_per_second > 0)
        say({{"job", job.name}, {"copied_bytes_per_second", results.copied_bytes_per_second}});
    }
  }

  void weights() {
    TrialGpu gpu(timer_);
    for (const Job& job : jobs_) {
      if (!goes_on()) {
        left_out_.push_back(job.name);
        continue;
      }
      try {
        const WeightResults results = measure_weights(gpu, job);
        say({{"job", job.name}, {"matmuls", results.matmuls}, {"splits", results.splits}});
        for (const MeasuredWeights& way : results.ways)
          say({{"job", job.name},
               {"algorithms", kWeightAlgorithmsNames[static_cast<std::size_t>(way.algorithms)]},
               {"side_streams", way.side_streams},
               {"microseconds", way.microseconds}});
      } catch (const WorkerError& error) {
        if (error.exit_code() != kExitConfig) throw;
        say({{"job", job.name}, {"skipped", error.what()}});
      }
    }
  }

  void end() {
    if (!left_out_.empty()) say({{"left_out", left_out_}});
  }

 private:
  bool goes_on() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count() <= request_.seconds;
  }
  void say(const Json& line) { out_ << line.dump() << std::endl; }

  Request request_;
  std::ostream& out_;
  const Timer& timer_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<Job> jobs_;
  std::vector<std::string> left_out_;
};

}  // namespace

int run_trials(const std::vector<std::string>& arguments, std::ostream& out, const Timer& timer) {
  try {
    const Request request = request_of(arguments);
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
      out << "skipped: no GPU\n";
      return kNoGpu;
    }
    Run run(request, out, timer);
    if (request.what == "repeats") run.repeats();
    if (request.what == "attention") run.attention();
    if (request.what == "weights") run.weights();
    run.end();
    return 0;
  } catch (const WorkerError& error) {
    out << error.what() << std::endl;
    return error.exit_code();
  }
}

}  // namespace dtrun::worker::cuda
