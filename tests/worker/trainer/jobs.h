// A small real job for tests of the trainer: its data set, its config, and ranks that run it to its end, to a
// stop or to their death.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/log.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/small_images.h"
#include "tests/worker/collective/ranks.h"
#include "worker/base/error.h"
#include "worker/trainer/trainer.h"

namespace dtrun::worker {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::write_idx;

namespace fs = std::filesystem;

// 301 samples make steps of 8 leaves and a last one of 4 whose last leaf holds a single sample.
inline constexpr int kTrainSamples = 301, kTestSamples = 70;

struct Job {
  Job() {
    write_idx(directory.path(), "train-images-idx3-ubyte", "train-labels-idx1-ubyte", kTrainSamples, 1);
    write_idx(directory.path(), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", kTestSamples, 2);
    set_log_reader([](const std::string&) {});
  }
  JobConfig config(const std::string& output) const {
    JobConfig config;
    config.output_dir = (directory.path() / output).string();
    config.model.type = ModelType::kConvnet;
    config.data = {DataType::kFashionMnist, directory.path().string()};
    config.train.num_train_epochs = 2;
    config.train.global_batch_size = 32;
    config.train.micro_batch_size = 4;
    config.train.learning_rate = 0.05;
    config.train.logging_steps = 1;
    config.train.eval_steps = 7;
    config.train.save_steps = 5;
    return config;
  }
  std::string model(const std::string& output) const {
    std::string bytes = read_text(directory.path() / output / "model.safetensors");
    REQUIRE(bytes.size() > 80000);
    return bytes;
  }
  std::string metrics(const std::string& output) const {
    return read_text(directory.path() / output / "metrics.jsonl");
  }
  Folder directory;
};

// Stops, or dies, when the trainer asks for the n-th time whether it should: once a step, and once per leaf
// of an evaluation.
class TestLink final : public AgentLink {
 public:
  explicit TestLink(int act_at = -1, bool die = false) : act_at_(act_at), die_(die) {}
  bool stop_requested() const override {
    const bool now = act_at_ >= 0 && asked_++ >= act_at_;
    if (now && die_) raise(SIGKILL);
    return now;
  }
  void report(const Progress& progress) override {
    first_step_ = progress.first_step;
    if (began_at_ || progress.phase == Progress::Phase::kLoading) return;
    began_at_ = progress.step - (progress.phase == Progress::Phase::kTraining ? 1 : 0);
  }
  void completed(const Completion& completion) override { completion_ = completion; }
  std::optional<Completion> completion_;
  // The steps that were done when this rank began: 0 if it began anew. The final bytes do not tell.
  std::optional<std::int64_t> began_at_;
  std::optional<std::int64_t> first_step_;  // as the newest report said

 private:
  const int act_at_;
  const bool die_;
  mutable std::atomic<int> asked_{0};
};

inline Outcome run_at(const RankInGeneration& place, const JobConfig& config, ProcessGroup& group, int lanes,
                      AgentLink& link, std::unique_ptr<Device> on = make_cpu_device()) {
  const Datasets data = load_datasets(config);
  Replica replica(config, data, lanes, std::move(on));
  return train(replica, place, group, link);
}

// Runs one rank, alone on its node.
inline Outcome run_rank(const JobConfig& config, ProcessGroup& group, int lanes, AgentLink& link,
                        std::int64_t generation = 1) {
  const RankInGeneration place{group.rank(), group.size(), group.rank(), generation};
  return run_at(place, config, group, lanes, link);
}

// All ranks to the job's end; returns the step from which they went on.
inline std::int64_t run_job(const JobConfig& config, int world, int lanes = 1, std::int64_t generation = 1) {
  std::vector<std::int64_t> began_at(world, -1);
  run_as_threads(world, [&](ProcessGroup& group) {
    TestLink link;
    const Outcome outcome = run_rank(config, group, lanes, link, generation);  // throws past doctest's macros
    REQUIRE(outcome == Outcome::kCompleted);
    REQUIRE(link.completion_.has_value() == (group.rank() == 0));
    began_at[group.rank()] = link.began_at_.value_or(-1);
  });
  CHECK(began_at == std::vector<std::int64_t>(world, began_at[0]));
  return began_at[0];
}

// Rank 1 is told to stop when it asks for the `ask`-th time, from 0. Returns the step where the run began.
inline std::int64_t stop_run(const JobConfig& config, int world_size, int ask) {
  std::int64_t began_at = -1;
  run_as_threads(world_size, [&](ProcessGroup& group) {
    TestLink link(group.rank() == 1 ? ask : -1);
    REQUIRE(run_rank(config, group, 1, link) == Outcome::kStopped);
    if (group.rank() == 0) began_at = link.began_at_.value_or(-1);
  });
  return began_at;
}

// Each rank is a process, the last of which is killed when it asks for the `ask`-th time, from 0. The others
// lose it.
inline void kill_run(const JobConfig& config, const fs::path& store_directory, int world_size, int ask) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(store_directory);
      const auto group = connect(rank, world_size, store, std::chrono::milliseconds(20000));
      TestLink link(rank == world_size - 1 ? ask : -1, true);
      run_rank(config, *group, 1, link);
      return 0;
    }));
  }
  const auto killed = wait_for_exit(pids.back(), std::chrono::milliseconds(60000));
  REQUIRE(killed.has_value());
  CHECK(WIFSIGNALED(*killed));
  pids.pop_back();
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, std::chrono::milliseconds(10000));
    REQUIRE(status.has_value());
    REQUIRE(WIFEXITED(*status));
    CHECK(WEXITSTATUS(*status) == kExitWorkerPeerLost);
  }
}

// The error with which a lone rank ends; fails the test if there is none.
inline WorkerError refusal(const JobConfig& config, std::int64_t generation = 1) {
  TestLink link;
  const auto group = make_single_process_group();
  try {
    run_rank(config, *group, 1, link, generation);
  } catch (const WorkerError& error) {
    return error;
  }
  FAIL("was not refused");
  return WorkerError(0, "");
}

// A rank of generation 1, which loses a peer, and of generation 2, in one process: exit code 0 if it went on
// with its own state.
inline int live_through_two_generations(const Job& job, const JobConfig& config, int rank, int worlds[2],
                                        std::unique_ptr<Device> on = make_cpu_device()) {
  const Datasets data = load_datasets(config);
  Replica replica(config, data, 1, std::move(on));
  for (const int generation : {1, 2}) {
    const int world = worlds[generation - 1];
    DirectoryStore store(job.directory.path() / ("store" + std::to_string(generation)));
    const auto group = connect(rank, world, store, milliseconds(20000));
    TestLink link;
    try {
      const Outcome outcome = train(replica, {rank, world, rank, generation}, *group, link);
      const bool went_on = link.began_at_.value_or(0) > 0;
      return generation == 2 && outcome == Outcome::kCompleted && went_on ? 0 : 1;
    } catch (const WorkerError& error) {
      if (generation == 2 || error.exit_code() != kExitWorkerPeerLost) return 2;
    }
  }
  return 3;
}

// Without what rightly differs between worlds and runs: times, rates, shares, the world size.
inline std::vector<std::array<std::string, 3>> losses(const std::string& metrics) {
  auto value = [](const std::string& line, const std::string& key) {
    const std::size_t at = line.find("\"" + key + "\":");
    return at == std::string::npos ? std::string() : line.substr(at, line.find_first_of(",}", at) - at);
  };
  std::vector<std::array<std::string, 3>> values;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    if (contains(line, R"("event":"start")") || contains(line, R"("event":"save")")) continue;
    values.push_back({value(line, "step"), value(line, "loss"), value(line, "accuracy")});
  }
  return values;
}

}  // namespace dtrun::worker
