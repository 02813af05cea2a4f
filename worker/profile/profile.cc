#include "worker/profile/profile.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
#include "worker/profile/report.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/recovery/replica.h"

namespace dtrun::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 3;  // a GPU's lane records its graphs in them
constexpr std::chrono::seconds kEnough{2};
constexpr int kFewestSteps = 5, kMostSteps = 1000;

JobConfig read_config(const std::string& path, std::span<const std::string> overrides) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw WorkerError(kExitNoInput, path + ": " + std::strerror(errno));
  return value_or_throw(parse_config(text.str(), path, overrides, std::getenv("HOME")));
}

// Local replicas make the steps of plain training, each of a part of the microbatches.
JobConfig without_replicas(JobConfig config) {
  config.train.local_replicas = 1;
  return config;
}

// A job on one worker, from its initial values, without evaluations and checkpoints.
class ProfiledJob {
 public:
  ProfiledJob(const JobConfig& config, int lanes, std::unique_ptr<Device> device)
      : config_(without_replicas(config)),
        data_(load_datasets(config_)),
        replica_(config_, data_, lanes, std::move(device)),
        batches_(data_.train->size(), config_.train.global_batch_size, config_.train.micro_batch_size,
                 config_.train.num_train_epochs, config_.train.max_steps, config_.train.dataloader_drop_last),
        gradient_step_(config_.train, replica_.program, *data_.train, *alone_, *replica_.device,
                       replica_.lanes, clock_) {
    TrainState start = replica_.snapshot();
    start.parameters.resize(replica_.program.size);
    initialize_parameters(replica_.program, config_.train.seed, start.parameters);
    replica_.restore(start);
  }

  // Runs the first step of the job each time: no step is larger, and later ones cost the same.
  void step() {
    const Range range(*replica_.device, Operation::Kind::kStep);
    const StepPlan plan = batches_.step(0);
    float* const sum = gradient_step_.run(plan, replica_.state.parameters.data());
    const auto begin = Clock::now();
    UpdateRule rule = update_rule(config_.train, 0, 0);
    rule.finite_only = config_.train.on_divergence == DivergenceAction::kStop;
    replica_.update(rule, sum);
    update_ += Clock::now() - begin;
  }

  // The profile without ceilings and rows. Sets *times.
  Profile run(int steps, OpTimes* times) {
    for (int i = 0; i < kWarmUpSteps; ++i) step();
    Profile profile;
    profile.device = replica_.device->name();
    profile.machine = replica_.device->fingerprint();
    profile.lanes = replica_.lanes.size();
    profile.samples = static_cast<double>(batches_.step(0).samples);
    profile.untimed_steps = count_steps(steps, [&] { step(); });
    profile.seconds = clock_.lap().seconds / profile.untimed_steps;

    OpTimer& timer = replica_.device->timer();
    timer.start();
    step();  // the first step allocates what later steps reuse
    timer.read();
    timer.start();
    profile.steps = count_steps(steps, [&] {
      step();
      const auto begin = Clock::now();
      timer.read();
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

 private:
  // Runs `wanted` steps; 0: enough steps for a measurement. Returns their number.
  template <typename Step>
  int count_steps(int wanted, const Step& one) {
    clock_.restart();
    update_ = {};
    const auto begin = Clock::now();
    int done = 0;
    const auto enough = [&] {
      if (wanted > 0) return done >= wanted;
      return done >= kFewestSteps && (done >= kMostSteps || Clock::now() - begin > kEnough);
    };
    for (; !enough(); ++done) one();
    return done;
  }

  const JobConfig config_;
  const Datasets data_;
  Replica replica_;
  const BatchSampler batches_;
  const std::unique_ptr<ProcessGroup> alone_ = make_single_process_group();
  StepClock clock_;
  GradientStep gradient_step_;
  Clock::duration update_{};
};

std::string describe(const ProfiledJob& job, const JobConfig& config, int lanes) {
  const TrainConfig& train = config.train;
  return name_of(config.model.type) + ": " +
         counted(static_cast<long long>(job.program().trained()), "parameter") + ", steps of " +
         counted(train.global_batch_size, "sample") + " in microbatches of " +
         std::to_string(std::min(train.micro_batch_size, train.global_batch_size)) +
         (lanes == 1 ? "" : ", " + counted(lanes, "lane") + " that work at once");
}

void profile(const JobConfig& config, const ProfileRequest& request) {
  const int lanes = request.gpu ? 1 : request.lanes;
  OpTimes times;
  // Given up before the ceilings are measured, which needs the job's memory.
  auto job = std::make_unique<ProfiledJob>(config, lanes,
                                           request.gpu ? make_cuda_device(*request.gpu) : make_cpu_device());
  Profile profile = job->run(request.steps, &times);
  profile.job = describe(*job, config, lanes);
  const Program program = job->program();
  job.reset();
  if (request.gpu) {
    profile.ceilings = measure_cuda_ceilings(*request.gpu, config.train.bf16);
  } else {
    profile.machine = describe_processor() + ", " + counted(std::thread::hardware_concurrency(), "core") +
                      "; loops for " + planned::kernels().instruction_set +
                      (config.train.bf16 && onednn::has_amx() ? ", matmuls by " + onednn::version() : "");
    const std::size_t working_set = make_plan(program, config.train.micro_batch_size).arena;
    profile.ceilings = measure_ceilings(lanes, working_set, config.train.bf16);
  }
  profile.rows = rows_of(times, profile.ceilings, profile.steps, lanes);
  if (!request.gpu) {  // on a GPU the update is operations, too
    profile.rows.push_back(row_beside("reading samples", profile.data));
    profile.rows.push_back(row_beside("mean, norm and optimizer", profile.update));
  }
  const std::string text = request.json ? json(profile) : table(profile);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

int profile_main(const ProfileRequest& request) {
  try {
    const JobConfig config = read_config(request.config, request.words);
    profile(config, request);
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
