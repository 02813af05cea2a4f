#include "worker/profile/profile.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cuda_device.h"
#include "worker/device/range.h"
#include "worker/model/plan.h"
#include "worker/optim/optimizer.h"
#include "worker/profile/ceilings.h"
#include "worker/profile/device_report.h"
#include "worker/profile/report.h"
#include "worker/profile/trace.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker {
namespace {

using Clock = NodeTime::Clock;

// A device's lane records its graphs in the first steps.
constexpr int kWarmUpSteps = 2, kDeviceWarmUpSteps = 3;
constexpr std::chrono::seconds kEnough{2};
constexpr int kFewestSteps = 5, kMostSteps = 1000;
// Times are read after each step, and a step adds thousands of operations to a trace.
constexpr int kMostTimedSteps = 20;

JobConfig read_config(const std::string& path, std::span<const std::string> overrides) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw WorkerError(kExitNoInput, path + ": " + std::strerror(errno));
  return value_or_throw(parse_config(text.str(), path, overrides));
}

// A job on one worker, from its initial values, without evaluations and checkpoints.
class ProfiledJob {
 public:
  ProfiledJob(const JobConfig& config, int lanes, std::unique_ptr<Device> device)
      : config_(config),
        data_(load_datasets(config_)),
        replica_(config_, data_, lanes, std::move(device)),
        batches_(data_.train->size(), config_.train.global_batch_size, config_.train.micro_batch_size,
                 config_.train.num_train_epochs, config_.train.max_steps, config_.train.dataloader_drop_last),
        gradient_step_(config_.train, replica_.program, *data_.train, *alone_, *replica_.device,
                       replica_.lanes, clock_),
        order_(config_.train.seed, 0, data_.train->size()) {
    TrainState start = replica_.snapshot();
    start.parameters.resize(replica_.program.size);
    initialize_parameters(replica_.program, config_.train.seed, start.parameters);
    replica_.restore(start);
  }

  // Runs the first step of the job each time: no step is larger, and later ones cost the same.
  void step() {
    const Range range(*replica_.device, "step");
    const StepPlan plan = batches_.step(0);
    float* const sum = gradient_step_.run(plan, order_, replica_.state.parameters.data());
    const auto begin = Clock::now();
    UpdateRule rule = update_rule(config_.train, 0, 0);
    rule.finite_only = config_.train.on_divergence == DivergenceAction::kStop;
    replica_.update(rule, sum);
    update_ += Clock::now() - begin;
  }

  Profile run(int steps) {
    for (int i = 0; i < kWarmUpSteps; ++i) step();
    times.resize(static_cast<std::size_t>(replica_.lanes.size()));
    replica_.lanes.run([&](int index, Lane& lane) { lane.record(&times[static_cast<std::size_t>(index)]); });
    start = Clock::now();
    const int done = count_steps(steps, kMostSteps, [&] { step(); });
    const StepClock::Shares shares = clock_.lap();
    replica_.lanes.run([&](int, Lane& lane) { lane.record(nullptr); });

    Profile profile;
    profile.lanes = replica_.lanes.size();
    profile.steps = done;
    profile.samples = static_cast<double>(batches_.step(0).samples);
    profile.seconds = shares.seconds / done;
    profile.data = shares.data * profile.seconds;
    profile.update = std::chrono::duration<double>(update_).count() / done;
    profile.rows = rows_of(replica_.program, times, profile.samples, done);
    return profile;
  }

  // The profile without ceilings and rows. Sets *times, and *ends to the number of times at each step's end.
  DeviceProfile run_on_device(int steps, OpTimes* times, std::vector<std::size_t>* ends) {
    for (int i = 0; i < kDeviceWarmUpSteps; ++i) step();
    DeviceProfile profile;
    profile.device = replica_.device->name();
    profile.machine = replica_.device->fingerprint();
    profile.samples = static_cast<double>(batches_.step(0).samples);
    profile.untimed_steps = count_steps(steps, kMostSteps, [&] { step(); });
    profile.seconds = clock_.lap().seconds / profile.untimed_steps;

    OpTimer& timer = *replica_.device->timer();
    timer.start();
    step();  // the first step allocates what later steps reuse
    timer.read();
    timer.start();
    profile.steps = count_steps(steps, kMostTimedSteps, [&] {
      step();
      const auto begin = Clock::now();
      timer.read();
      ends->push_back(timer.times().times.size());
      clock_.leave_out_since(begin);
    });
    timer.stop();
    const StepClock::Shares shares = clock_.lap();
    *times = timer.times();
    profile.timed_seconds = shares.seconds / profile.steps;
    profile.data = shares.data * profile.timed_seconds;
    profile.update = std::chrono::duration<double>(update_).count() / profile.steps;
    return profile;
  }

  const Program& program() const { return replica_.program; }
  // Floats of the values and gradients of a microbatch.
  std::size_t working_set() const { return make_plan(program(), config_.train.micro_batch_size).arena; }

  std::vector<std::vector<NodeTime>> times;  // [lane]
  Clock::time_point start;

 private:
  // Runs `wanted` steps; 0: enough steps for a measurement. Returns their number.
  template <typename Step>
  int count_steps(int wanted, int most, const Step& one) {
    clock_.restart();
    update_ = {};
    const auto begin = Clock::now();
    int done = 0;
    const auto enough = [&] {
      if (wanted > 0) return done >= wanted;
      return done >= most || (done >= kFewestSteps && Clock::now() - begin > kEnough);
    };
    for (; !enough(); ++done) one();
    return done;
  }

  const JobConfig& config_;
  const Datasets data_;
  Replica replica_;
  const BatchSampler batches_;
  const std::unique_ptr<ProcessGroup> alone_ = make_single_process_group();
  StepClock clock_;
  GradientStep gradient_step_;
  const EpochOrder order_;
  Clock::duration update_{};
};

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw WorkerError(kExitCannotCreate, path + ": " + std::strerror(errno));
}

std::string describe(const ProfiledJob& job, const TrainConfig& train, const std::string& model) {
  return model + ": " + counted(static_cast<long long>(job.program().size), "parameter") + ", steps of " +
         counted(train.global_batch_size, "sample") + " in microbatches of " +
         std::to_string(std::min(train.micro_batch_size, train.global_batch_size));
}

void profile_cpu(const JobConfig& config, const ProfileRequest& request) {
  ProfiledJob job(config, request.lanes, make_cpu_device());
  Profile profile = job.run(request.steps);
  const TrainConfig& train = config.train;
  profile.job = describe(job, train, name_of(config.model.type)) + ", " + counted(request.lanes, "lane") +
                (request.lanes == 1 ? "" : " that work at once");
  profile.machine = describe_processor() + ", " + counted(std::thread::hardware_concurrency(), "core") +
                    "; loops for " + planned::kernels().instruction_set + ", matmuls by " + onednn::version();
  profile.ceilings = measure_ceilings(request.lanes, job.working_set(), train.bf16);
  const std::string text = request.json ? json(profile) : table(profile);
  std::fputs(text.c_str(), stdout);
  if (!request.trace.empty()) write(request.trace, chrome_trace(job.program(), job.times, job.start));
}

void profile_gpu(const JobConfig& config, int gpu, const ProfileRequest& request) {
  OpTimes times;
  std::vector<std::size_t> steps;
  // Scoped, since measuring the ceilings needs the job's memory.
  auto job = std::make_unique<ProfiledJob>(config, 1, make_cuda_device(gpu));
  DeviceProfile profile = job->run_on_device(request.steps, &times, &steps);
  profile.job = describe(*job, config.train, name_of(config.model.type));
  const Program program = job->program();
  job.reset();
  profile.ceilings = measure_cuda_ceilings(gpu, config.train.bf16);
  profile.rows = rows_of(times, profile.ceilings, profile.steps);
  const std::string text = request.json ? json(profile) : table(profile);
  std::fputs(text.c_str(), stdout);
  if (!request.trace.empty()) write(request.trace, chrome_trace(program, times, steps));
}

}  // namespace

int profile_main(const ProfileRequest& request) {
  try {
    const JobConfig config = read_config(request.config, request.words);
    request.gpu ? profile_gpu(config, *request.gpu, request) : profile_cpu(config, request);
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::fputs("dtrun: out of memory; fewer lanes or a smaller micro_batch_size need less\n", stderr);
    return kExitSoftware;
  }
}

}  // namespace dtrun::worker
