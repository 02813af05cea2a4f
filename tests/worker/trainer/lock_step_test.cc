#include "worker/trainer/lock_step.h"

#include <algorithm>
#include <cmath>

#include "tests/worker/trainer/jobs.h"

namespace dtrun::worker::lock_step_test {
namespace {

JobConfig with_norms(const Job& job, const std::string& output, int micro, int group) {
  JobConfig config = job.config(output);
  config.model.type = ModelType::kResnet;
  config.model.depths = {1, 1};
  config.model.embedding_size = 16;
  config.train.max_steps = 11;  // the tenth has 13 samples, one of them in a microbatch of its own
  config.train.eval_steps = 0;
  config.train.micro_batch_size = micro;
  config.train.batch_norm_group = group;
  return config;
}

std::vector<double> losses_of(const Job& job, const std::string& output) {
  std::vector<double> found;
  for (const auto& [step, loss, accuracy] : losses(job.metrics(output)))
    if (!loss.empty() && accuracy.empty()) found.push_back(std::stod(loss.substr(loss.find(':') + 1)));
  return found;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("batch norms over groups have the same bits for any number of ranks and lanes") {
  const Job job;
  for (const int group : {0, 4}) {
    CAPTURE(group);
    run_job(with_norms(job, "alone", 4, group), 1);
    for (const auto& [ranks, lanes] : {std::pair{1, 2}, {2, 1}, {3, 2}, {5, 1}}) {
      const int world = ranks;  // clang 14 lets no lambda, as CAPTURE is one, have a structured binding
      CAPTURE(world);
      const std::string output = std::to_string(group) + "x" + std::to_string(world * 10 + lanes);
      run_job(with_norms(job, output, 4, group), world, lanes);
      CHECK(job.model(output) == job.model("alone"));
    }
    fs::remove_all(job.directory.path() / "alone");
  }
}

TEST_CASE("batch norms over all microbatches are those of one microbatch with all their samples") {
  const Job job;
  run_job(with_norms(job, "whole", 32, 1), 1);
  run_job(with_norms(job, "all", 4, 0), 2);
  run_job(with_norms(job, "halves", 8, 2), 2);
  run_job(with_norms(job, "sixteen", 16, 1), 1);
  run_job(with_norms(job, "each", 4, 1), 2);
  const std::vector<double> whole = losses_of(job, "whole");
  REQUIRE(whole.size() == 11);
  CHECK(largest_difference(losses_of(job, "all"), whole) < 1e-4);
  CHECK(largest_difference(losses_of(job, "halves"), losses_of(job, "sixteen")) < 1e-4);
  CHECK(largest_difference(losses_of(job, "each"), whole) > 1e-3);
}

}  // namespace dtrun::worker::lock_step_test
