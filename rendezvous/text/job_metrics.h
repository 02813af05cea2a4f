// What Prometheus is told of a coordinator's runs (docs/observe.md lists the names). Pure.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "proto/core/training.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/text/exposition.h"

namespace dtrun::rendezvous {

// Above so many workers of a run, a sum for each node takes the place of the workers' own series.
inline constexpr int kMostWorkerSeries = 1024;

// A run that was not asked about for this long, in seconds, is forgotten.
inline constexpr double kForgetRunAfter = 3600;

// The process that answers, as the kernel tells; names as in all of Prometheus' clients.
struct ProcessFacts {
  double cpu_seconds = 0;
  double start_time = 0;  // seconds since 1970
  double resident_bytes = 0, virtual_bytes = 0;
  double open_files = 0, most_files = 0;
  double threads = 0;
};

// A counter of something that may begin again at 0, and that must not fall for readers.
class Rising {
 public:
  // `value`: since the newest beginning. One below an earlier one, by an estimate that was put right, counts
  // as that.
  double rise(double value);
  void begin_again();

 private:
  double base_ = 0, newest_ = 0;
};

// Makes the answers to the scrapes of one server. It remembers what it told of each run, since its counters
// must not fall as generations and workers begin again; a run of the same name that begins anew begins at 0.
class JobMetrics {
 public:
  // `now`: seconds since 1970. `version`: of dtrun.
  std::string text(std::span<const v1::RunStatus> runs, const ProcessFacts& process, double now,
                   const std::string& version);

 private:
  // Counters of one worker: those of its generation, and those of its process.
  struct Worker {
    std::int64_t steps = 0;
    int pid = 0;
    std::array<Rising, 7> of_generation;
    std::array<Rising, 5> of_process;
  };
  struct Run {
    std::int64_t generation = 0;
    bool over = false;
    double seen_at = 0;
    double start_time = 0, steps = 0, last_step_time = 0;
    std::array<Rising, 8> seconds;                          // by kind of goodput
    std::map<std::pair<std::string, int>, Worker> workers;  // by host and rank
    // What rank 0 said, and in which generation. The first steps of a generation may find what it said in the
    // one before.
    training::StepDurations durations;
    training::Checkpoints checkpoints;
    std::int64_t rank_0_generation = 0;
    std::array<Rising, std::size(kStepDurationBounds) + 1> steps_up_to;
    Rising step_seconds, written, failed;
    training::Checkpoints newest;  // on the disk
    double newest_seen_at = 0;
  };
  class RunWriter;

  std::map<std::string, Run> runs_;
};

}  // namespace dtrun::rendezvous
