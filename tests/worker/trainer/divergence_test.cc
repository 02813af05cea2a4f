// A run that can only get worse ends: its loss is not finite, or its replicas differ.
#include "worker/trainer/divergence.h"

#include <algorithm>

#include "tests/worker/trainer/jobs.h"
#include "worker/checkpoint/layout.h"

namespace dtrun::worker::divergence_test {
namespace {

// The error that every rank ends with.
std::string end_of(const JobConfig& config, int world, int lanes = 1) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  run_as_threads(world, [&](ProcessGroup& group) {
    TestLink link;
    try {
      run_rank(config, group, lanes, link);
    } catch (const WorkerError& error) {
      REQUIRE(error.exit_code() == kExitDataError);
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(world), errors[0]));
  return errors[0];
}

std::vector<std::int64_t> steps_saved(const JobConfig& config) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, path] : list_checkpoints(config.output_dir)) steps.push_back(step);
  return steps;
}

TEST_CASE(
    "a loss that is not finite ends the job with its step and place, the same for any number of workers") {
  const Job job;
  JobConfig config = job.config("1x1");
  config.train.learning_rate = 1e5;
  config.train.save_steps = 1;
  config.train.save_total_limit = 0;
  const std::string error = end_of(config, 1);
  CHECK_MESSAGE(contains(error, "training diverged in step "), error);
  CHECK_MESSAGE(contains(error,
                         "; the first gradient that is not finite is that of conv1.weight; it begins in "
                         "microbatch "),
                error);
  CHECK_MESSAGE(contains(error, " of 8. A lower train.learning_rate"), error);
  const std::int64_t step = std::stoll(error.substr(std::string("training diverged in step ").size()));
  REQUIRE(step > 1);
  // The state before it is good, and stays.
  CHECK(steps_saved(config).back() == step - 1);
  CHECK_FALSE(fs::exists(job.directory.path() / "1x1/model.safetensors"));
  for (const auto& [world, lanes] : {std::pair{1, 2}, {2, 1}, {3, 2}}) {
    const std::string output = std::to_string(world) + "x" + std::to_string(lanes);
    CAPTURE(output);
    config.output_dir = job.config(output).output_dir;
    CHECK(end_of(config, world, lanes) == error);
    CHECK(steps_saved(config).back() == step - 1);
  }
  // The same steps bring it again.
  CHECK(end_of(config, 2) == error);
}

// Ends training where it is told to, on this rank: puts a number into its parameters before a step.
class Corrupting final : public AgentLink {
 public:
  Corrupting(Replica& replica, std::int64_t step, std::size_t at, float value)
      : replica_(replica), step_(step), at_(at), value_(value) {}
  bool stop_requested() const override {
    if (replica_.state.step == step_) replica_.state.parameters.data()[at_] = value_;
    return false;
  }
  void report(const Progress&) override {}
  void completed(const Completion&) override {}

 private:
  Replica& replica_;
  const std::int64_t step_;
  const std::size_t at_;
  const float value_;
};

// With this value in that tensor on one rank from that step on (counted from 0). Empty: the job ended well.
std::string end_with(const JobConfig& config, int world, int rank, const std::string& tensor,
                     std::int64_t step, float value) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  run_as_threads(world, [&](ProcessGroup& group) {
    const Datasets data = load_datasets(config);
    Replica replica(config, data, 1);
    const auto parameter = std::ranges::find(replica.program.parameters, tensor, &Parameter::name);
    REQUIRE(parameter != replica.program.parameters.end());
    const bool chosen = rank < 0 || group.rank() == rank;
    Corrupting link(replica, chosen ? step : -1, parameter->offset + parameter->size - 1, value);
    try {
      train(replica, {group.rank(), world, group.rank(), 1}, group, link);
    } catch (const WorkerError& error) {
      REQUIRE(error.exit_code() == kExitDataError);
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(world), errors[0]));
  return errors[0];
}

TEST_CASE(
    "the first parameter that is not finite is named, or else the first such gradient, if there is one") {
  const Job job;
  const std::string parameter = end_with(job.config("a"), 2, -1, "fc1.bias", 3, NAN);
  CHECK_MESSAGE(contains(parameter,
                         "training diverged in step 4: the loss is not finite; its parameters were "
                         "not either, the first fc1.bias; it begins in microbatch 1 of 8."),
                parameter);
  // Finite, and so are the gradients of so certain a model, but not its loss.
  const std::string loss = end_with(job.config("b"), 2, -1, "fc2.bias", 3, 3e38f);
  CHECK_MESSAGE(contains(loss,
                         "training diverged in step 4: the loss is not finite; it begins in microbatch 1 of "
                         "8."),
                loss);
}

TEST_CASE("a test loss that is not finite ends the job, unless a warning was asked for") {
  const Job job;
  JobConfig config = job.config("stops");
  config.train.eval_steps = 0;
  config.train.max_steps = 3;  // good ones: the number gets in while the evaluation behind them begins
  const std::string error = end_with(config, 2, -1, "fc2.bias", 3, NAN);
  CHECK_MESSAGE(contains(error, "training diverged: after step 3 the test loss is not finite. A lower"),
                error);
  config.output_dir = job.config("warns").output_dir;
  config.train.on_divergence = DivergenceAction::kWarn;
  CHECK(end_with(config, 2, -1, "fc2.bias", 3, NAN) == "");
}

TEST_CASE("a rank whose parameters are not those of the others is found, with the tensor") {
  const Job job;
  JobConfig config = job.config("three");
  config.train.verify_sync_steps = 4;
  const std::string of_three = end_with(config, 3, 1, "conv2.bias", 5, 0.5f);
  // Its gradients differ from then on, so all that follows may; the first tensor is named.
  CHECK_MESSAGE(contains(of_three, "after step 8 the parameters are not the same on every rank: "), of_three);
  CHECK_MESSAGE(contains(of_three, "conv2.bias of rank 1 differs from rank 0's."), of_three);
  CHECK(steps_saved(config) == std::vector<std::int64_t>{5});
  config.output_dir = job.config("first").output_dir;
  CHECK(
      contains(end_with(config, 3, 0, "fc1.weight", 4, 0.5f), "fc1.weight of rank 0 differs from rank 1's."));
  config.output_dir = job.config("two").output_dir;
  CHECK(
      contains(end_with(config, 2, 0, "fc1.weight", 4, 0.5f), "fc1.weight of rank 1 differs from rank 0's."));
  config.output_dir = job.config("unnoticed").output_dir;
  config.train.verify_sync_steps = 0;
  CHECK(end_with(config, 2, 0, "fc1.weight", 4, 0.5f) == "");
  config.output_dir = job.config("well").output_dir;
  config.train.verify_sync_steps = 1;
  run_job(config, 3);
  CHECK(job.model("well").size() > 0);
}

}  // namespace
}  // namespace dtrun::worker::divergence_test
