// Training with rounded weights: a lane computes with what the export stores, and one result for any division
// of the work.
#include "tests/worker/model/programs.h"
#include "tests/worker/trainer/jobs.h"
#include "worker/quantize/matrices.h"

namespace dtrun::worker::quantize_aware_test {
namespace {

struct Outcomes {
  std::vector<float> trained;  // [statistics | gradient]
  float evaluated;
  bool operator==(const Outcomes&) const = default;
};
Outcomes run_lane(const Program& program, const Problem& problem, const std::vector<float>& parameters) {
  const auto lane = make_cpu_device()->make_lane(program, 4);
  lane->parameters_changed(parameters.data());
  Outcomes outcomes{.trained = std::vector<float>(kStatisticsFloats + program.size), .evaluated = 0};
  lane->train(problem.microbatch(4), outcomes.trained.data(), [](int) {});
  lane->stream().wait();
  outcomes.evaluated = lane->evaluate(problem.microbatch(4)).loss;
  return outcomes;
}

TEST_CASE("a lane's loss and gradient are those of the rounded weights, in groups and in rows") {
  std::vector<NamedProgram> programs = test_programs();
  for (NamedProgram& planned : planned_programs()) programs.push_back(std::move(planned));
  for (const NamedProgram& named : programs) {
    CAPTURE(named.name);
    const Problem problem(named.program, 4);
    const Outcomes plain = run_lane(named.program, problem, problem.parameters);
    for (const Quantization how : {Quantization::kQ8_0, Quantization::kQ4_0}) {
      Program aware = named.program;
      aware.quantize_aware = how;
      std::vector<float> rounded(aware.size);
      round_matrices(aware, how, problem.parameters.data(), rounded.data());
      const Outcomes got = run_lane(aware, problem, problem.parameters);
      CHECK(got == run_lane(named.program, problem, rounded));
      CHECK(got != plain);
    }
  }
}

TEST_CASE("rounded weights give the same bytes for any number of workers and lanes, and after a kill") {
  const Job job;
  const auto config = [&](const std::string& output) {
    JobConfig aware = job.config(output);
    aware.train.quantize_aware = Quantization::kQ4_0;
    return aware;
  };
  run_job(config("1x1"), 1);
  const std::string model = job.model("1x1");
  for (const auto& [world, lanes] : {std::pair{1, 2}, {3, 2}}) {
    const std::string output = std::to_string(world) + "x" + std::to_string(lanes);
    CAPTURE(output);
    run_job(config(output), world, lanes);
    CHECK(job.model(output) == model);
  }
  kill_run(config("killed"), job.directory / "store", 3, 16);
  CHECK(run_job(config("killed"), 2, 1, 2) >= 5);
  CHECK(job.model("killed") == model);
  run_job(job.config("plain"), 1);
  CHECK(job.model("plain") != model);
}

}  // namespace
}  // namespace dtrun::worker::quantize_aware_test
