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

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/device/cpu/onednn/product.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/model/plan.h"
#include "worker/optim/optimizer.h"
#include "worker/profile/ceilings.h"
#include "worker/profile/report.h"
#include "worker/trainer/gradient_step.h"
#include "worker/trainer/replica.h"

namespace dtrun::worker {
namespace {

using Clock = NodeTime::Clock;

constexpr int kWarmUpSteps = 2;
constexpr std::chrono::seconds kEnough{2};
constexpr int kFewestSteps = 5, kMostSteps = 1000;

JobConfig read_config(const std::string& path, std::span<const std::string> overrides) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw WorkerError(kExitNoInput, path + ": " + std::strerror(errno));
  Result<JobConfig> config = parse_config(text.str(), path, overrides);
  if (!config.ok()) throw WorkerError(config.status().exit_code(), config.status().message());
  if (config.value().device == "cuda")
    throw WorkerError(
        kExitConfig,
        path + ": dtrun profile measures the CPU only so far; add device=cpu to the command line");
  return std::move(config).value();
}

// A job on one worker, from its initial values, without evaluations and checkpoints.
class Job {
 public:
  Job(const JobConfig& config, int lanes)
      : config_(config),
        data_(load_datasets(config_)),
        replica_(config_, data_, lanes),
        schedule_(data_.train->size(), config_.train.global_batch_size, config_.train.micro_batch_size,
                  config_.train.num_train_epochs, config_.train.max_steps,
                  config_.train.dataloader_drop_last),
        gradient_step_(config_.train, replica_.program, *data_.train, *alone_, *replica_.device,
                       replica_.lanes, clock_),
        order_(config_.train.seed, 0, data_.train->size()) {
    TrainState start = replica_.snapshot();
    start.parameters.resize(replica_.program.size);
    initialize_parameters(replica_.program, config_.train.seed, start.parameters);
    replica_.restore(start);
  }

  // The first step of the job, again and again: as large as any, and later ones cost the same.
  void step() {
    const StepPlan plan = schedule_.step(0);
    float* const sum = gradient_step_.run(plan, order_, replica_.state.parameters.data());
    const auto begin = Clock::now();
    UpdateRule rule = update_rule(config_.train, 0, 0);
    rule.finite_only = config_.train.on_divergence == "stop";
    replica_.update(rule, sum);
    update_ += Clock::now() - begin;
  }

  Profile run(int steps) {
    for (int i = 0; i < kWarmUpSteps; ++i) step();
    times.resize(static_cast<std::size_t>(replica_.lanes.size()));
    replica_.lanes.run([&](int index, Lane& lane) { lane.record(&times[static_cast<std::size_t>(index)]); });
    clock_.restart();
    update_ = {};
    start = Clock::now();
    int done = 0;
    const auto enough = [&] {
      if (steps > 0) return done >= steps;
      return done >= kMostSteps || (done >= kFewestSteps && Clock::now() - start > kEnough);
    };
    for (; !enough(); ++done) step();
    const StepClock::Shares shares = clock_.lap();
    replica_.lanes.run([&](int, Lane& lane) { lane.record(nullptr); });

    Profile profile;
    profile.lanes = replica_.lanes.size();
    profile.steps = done;
    profile.samples = static_cast<double>(schedule_.step(0).samples);
    profile.seconds = shares.seconds / done;
    profile.data = shares.data * profile.seconds;
    profile.update = std::chrono::duration<double>(update_).count() / done;
    profile.rows = rows_of(replica_.program, times, profile.samples, done);
    return profile;
  }

  const Program& program() const { return replica_.program; }
  // Floats of the values and gradients of a microbatch.
  std::size_t working_set() const { return make_plan(program(), config_.train.micro_batch_size).arena; }

  std::vector<std::vector<NodeTime>> times;  // [lane]
  Clock::time_point start;

 private:
  const JobConfig& config_;
  const Datasets data_;
  Replica replica_;
  const Schedule schedule_;
  const std::unique_ptr<Collective> alone_ = make_single_process_collective();
  StepClock clock_;
  GradientStep gradient_step_;
  const EpochOrder order_;
  Clock::duration update_{};
};

std::string counted(long long count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

void write_trace(const std::string& path, const Job& job) {
  std::ofstream file(path, std::ios::trunc);
  file << chrome_trace(job.program(), job.times, job.start);
  file.close();
  if (!file) throw WorkerError(kExitCannotCreate, path + ": " + std::strerror(errno));
}

void profile(const JobConfig& config, int lanes, int steps, bool as_json, const std::string& trace) {
  Job job(config, lanes);
  Profile profile = job.run(steps);
  const TrainConfig& train = config.train;
  profile.job = config.model.type + ": " + counted(static_cast<long long>(job.program().size), "parameter") +
                ", steps of " + counted(train.global_batch_size, "sample") + " in microbatches of " +
                std::to_string(std::min(train.micro_batch_size, train.global_batch_size)) + ", " +
                counted(lanes, "lane") + (lanes == 1 ? "" : " that work at once");
  profile.machine = describe_processor() + ", " + counted(std::thread::hardware_concurrency(), "core") +
                    "; loops for " + planned::kernels().instruction_set + ", products by " +
                    onednn::version();
  profile.ceilings = measure_ceilings(lanes, job.working_set(), train.bf16);
  const std::string text = as_json ? json(profile) : table(profile);
  std::fputs(text.c_str(), stdout);
  if (!trace.empty()) write_trace(trace, job);
}

}  // namespace

int profile_main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) return kExitUsage;
  try {
    const JobConfig config = read_config(arguments[0], std::span(arguments).subspan(5));
    profile(config, std::atoi(arguments[1].c_str()), std::atoi(arguments[2].c_str()), arguments[3] == "json",
            arguments[4]);
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
