// OUTPUT_DIR/metrics.jsonl: one JSON object a line, for scripts; and the same numbers for TensorBoard. Only
// rank 0 writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/core/training.h"
#include "worker/core/device_use.h"
#include "worker/core/evaluation_record.h"
#include "worker/metrics/event_file.h"
#include "worker/metrics/patient_file.h"

namespace dtrun::worker {

struct TrainMetrics {
  std::int64_t step = 0;  // optimizer steps done
  double epoch = 0, loss = 0, learning_rate = 0, grad_norm = 0, samples_per_second = 0;
  double tokens_per_second = 0;  // 0: the data are no tokens
  int world_size = 1;
  std::int64_t generation = 0;
  // Share of the wall time since the last line that was not math, 0..1, and its parts.
  double wait_gradients = 0, wait_data = 0, other = 0;
  std::optional<DeviceMemory> memory = {};  // of rank 0's device, if that has its own
};
// The state of logging, the same on every rank, so that any rank can take over when rank 0 is lost.
struct MetricsLog {
  double loss = 0, targets = 0;  // sums since the newest line of training
  TrainMetrics newest;           // that line; step 0: none yet
  // The newest lines, as curves need them: what a generation could not tell any more the next one does.
  std::array<LoggedStep, kLoggedStepsTold> lines = {};
  std::size_t line_count = 0;
  std::optional<double> accuracy = {};  // of the newest evaluation
  EvaluationRecord evaluations;
};
// A generation begins.
struct StartMetrics {
  std::int64_t step = 0;  // steps done before
  std::uint64_t parameters = 0;
  int world_size = 1, lanes = 1;
  std::int64_t generation = 0;
  const char* from = "";  // origin of the state: initial values, a checkpoint, a worker, the host's memory
  std::string device = "cpu";  // the kind of the workers' device
  DeviceUse use = {};
};
struct SaveMetrics {
  std::int64_t step = 0;
  double stall_milliseconds = 0;  // time that training stood still
};
struct EvalMetrics {
  std::int64_t step = 0;
  double loss = 0, accuracy = 0;
  std::optional<double> perplexity = {};  // of tokens
};
struct EndMetrics {
  std::int64_t step = 0;
  std::string params_sha256;
  std::int64_t best_step = -1;  // step of the best model, if the config asks for it
  DeviceUse use = {};
};

class MetricsWriter {
 public:
  // Opens for appending. Lines of steps after `resume_step` (they will be computed again) and a torn last
  // line are dropped first. A line of `resume_step` that is in the file already is not written a second time.
  // Throws WorkerError, EX_IOERR or EX_CANTCREAT; later a line that cannot be written waits for the next one
  // (patient_file.h). `events`: null without TensorBoard.
  MetricsWriter(const std::filesystem::path& output_dir, std::int64_t resume_step, PatientFile::Notice notice,
                std::unique_ptr<EventFile> events = nullptr);

  void write(const StartMetrics& m);
  void write(const TrainMetrics& m);
  void write(const EvalMetrics& m);
  void write(const SaveMetrics& m);
  void write(const EndMetrics& m);

 private:
  const int fd_;  // file_ closes it
  PatientFile file_;
  const std::unique_ptr<EventFile> events_;
  // A step whose lines the file held when it was opened; -1: none.
  std::int64_t trained_step_ = -1, evaluated_step_ = -1;
};

}  // namespace dtrun::worker
