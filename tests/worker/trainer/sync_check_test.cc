// Ranks that have not loaded the same data.
#include "worker/trainer/sync_check.h"

#include <unistd.h>

#include <array>
#include <functional>

#include "tests/worker/trainer/jobs.h"

namespace dtrun::worker::sync_check_test {
namespace {

// A data set of the same form as the job's, unless told otherwise.
void write_other(const fs::path& directory, int samples = kTrainSamples, int side = 28, unsigned seed = 9) {
  fs::create_directories(directory);
  write_idx(directory, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", samples, seed, side);
  write_idx(directory, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", kTestSamples, 2, side);
}

std::string host() {
  std::array<char, 64> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// What each rank says; "trained" if nothing. `others`: the ranks with the data in `other`.
std::vector<std::string> said_by(const Job& job, int world, int workers_of_node, const fs::path& other,
                                 const std::vector<int>& others) {
  std::vector<std::string> said(static_cast<std::size_t>(world));
  run_as_threads(world, [&](ProcessGroup& group) {
    JobConfig config = job.config("out");
    config.train.max_steps = 1;
    if (std::ranges::count(others, group.rank()) > 0) config.data.path = other.string();
    TestLink link;
    const int rank = group.rank();
    try {
      run_at({rank, world, rank % workers_of_node, 1}, config, group, 1, link);
      said[static_cast<std::size_t>(rank)] = "trained";
    } catch (const WorkerError& error) {
      said[static_cast<std::size_t>(rank)] = std::to_string(error.exit_code()) + ": " + error.what();
    }
  });
  return said;
}

TEST_CASE("ranks with other data are refused on every rank, with their nodes and what differs") {
  const Job job;
  const fs::path other = job.directory.path() / "other";
  const std::string ours = " has 301 training and 70 test samples of 1x28x28 in 10 classes",
                    at = "(" + host() + ", ";
  const auto check = [&](const std::vector<std::string>& said, const std::string& rest) {
    for (const std::string& one : said) {
      CHECK_MESSAGE(one.starts_with("66: /data/path: " + job.directory.path().string()), one);
      CHECK_MESSAGE(contains(one, " is not the same data on all nodes: node 0 " + at + "rank 0)" + ours +
                                      "; " + rest + ". Bring the same files"),
                    one);
    }
    CHECK_FALSE(fs::exists(job.directory.path() / "out/metrics.jsonl"));
  };
  write_other(other);
  check(said_by(job, 2, 1, other, {1}), "node 1 " + at + "rank 1) has as many with other contents");
  // A node is named once, and all of them are.
  check(said_by(job, 6, 2, other, {2, 3, 5}), "node 1 " + at +
                                                  "rank 2) has as many with other contents; node 2 " + at +
                                                  "rank 5) has as many with other contents");
  write_other(other, kTrainSamples - 1, 28, 1);
  check(said_by(job, 2, 1, other, {1}),
        "node 1 " + at + "rank 1) has 300 training and 70 test samples of 1x28x28 in 10 classes");
  write_other(other, kTrainSamples, 20);
  check(said_by(job, 2, 1, other, {1}),
        "node 1 " + at + "rank 1) has 301 training and 70 test samples of 1x20x20 in 10 classes");
  write_other(other, kTrainSamples, 28, 1);  // a copy
  CHECK(said_by(job, 2, 1, other, {1}) == std::vector<std::string>{"trained", "trained"});
}

// Tells a rank to pause after its fifth step.
class Pausing final : public AgentLink {
 public:
  bool stop_requested() const override { return false; }
  bool pause_requested() const override { return ++asked_ > 5; }
  void report(const Progress&) override {}
  void completed(const Completion&) override {}

 private:
  mutable int asked_ = 0;
};

TEST_CASE("a node that joins with other data ends the job, whose steps are saved before") {
  const Job job;
  JobConfig config = job.config("out");
  config.train.save_steps = config.train.eval_steps = 0;
  const Datasets data = load_datasets(config);
  Replica survivor(config, data, 1);
  Pausing pausing;
  REQUIRE(train(survivor, {}, *make_single_process_group(), pausing) == Outcome::kPaused);
  REQUIRE(survivor.state.step > 0);
  REQUIRE(list_checkpoints(config.output_dir).empty());
  const fs::path other = job.directory.path() / "other";
  write_other(other);
  run_as_threads(2, [&](ProcessGroup& group) {
    TestLink link;
    JobConfig joins = config;
    joins.data.path = other.string();
    std::string said;
    try {
      if (group.rank() == 0)
        train(survivor, {0, 2, 0, 2}, group, link);
      else
        run_at({1, 2, 0, 2}, joins, group, 1, link);
    } catch (const WorkerError& error) {
      said = error.what();
    }
    REQUIRE(contains(said, "is not the same data on all nodes"));
  });
  const auto checkpoints = list_checkpoints(config.output_dir);
  REQUIRE(checkpoints.size() == 1);
  CHECK(checkpoints.begin()->first == survivor.state.step);
}

}  // namespace
}  // namespace dtrun::worker::sync_check_test
