#include "worker/metrics/metrics.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "proto/json/json.h"
#include "worker/base/error.h"
#include "worker/metrics/rewind.h"
#include "worker/metrics/wall_time.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
void put(Json& line, const DeviceUse& use) {
  if (use.parts.empty()) return;
  line["device_uses"] = use.parts;
  line["device_fallbacks"] = use.fallbacks;
}

fs::path file_in(const fs::path& output_dir) {
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) throw cannot_write("cannot create " + output_dir.string(), error.value());
  return output_dir / "metrics.jsonl";
}

int open_at(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw cannot_write("cannot open " + path.string(), errno);
  return fd;
}

// TensorBoard's names are those of transformers where it has such.
std::vector<Scalar> scalars_of(const TrainMetrics& m) {
  std::vector<Scalar> scalars{{"train/loss", m.loss},
                              {"train/learning_rate", m.learning_rate},
                              {"train/grad_norm", m.grad_norm},
                              {"train/epoch", m.epoch},
                              {"perf/samples_per_second", m.samples_per_second},
                              {"perf/math", 1 - m.wait_gradients - m.wait_data - m.other},
                              {"perf/wait_gradients", m.wait_gradients},
                              {"perf/wait_data", m.wait_data},
                              {"perf/other", m.other},
                              {"job/world_size", static_cast<double>(m.world_size)},
                              {"job/generation", static_cast<double>(m.generation)}};
  if (m.tokens_per_second > 0) scalars.push_back({"perf/tokens_per_second", m.tokens_per_second});
  if (m.memory) scalars.push_back({"perf/gpu_memory_peak", static_cast<double>(m.memory->peak)});
  return scalars;
}

}  // namespace

MetricsWriter::MetricsWriter(const fs::path& output_dir, std::int64_t resume_step, PatientFile::Notice notice,
                             std::unique_ptr<EventFile> events)
    : fd_(open_at(file_in(output_dir))),
      file_(file_in(output_dir), fd_, "line", std::move(notice)),
      events_(std::move(events)) {
  const Rewound rewound = rewind_metrics(fd_, resume_step);
  if (rewound.error != 0)
    throw cannot_write("cannot take back to the step of the checkpoint " + file_in(output_dir).string(),
                       rewound.error);
  trained_step_ = rewound.trained ? resume_step : -1;
  evaluated_step_ = rewound.evaluated ? resume_step : -1;
}

void MetricsWriter::write(const StartMetrics& m) {
  Json line = {{"event", "start"},           {"step", m.step},   {"parameters", m.parameters},
               {"world_size", m.world_size}, {"lanes", m.lanes}, {"generation", m.generation}};
  line["from"] = m.from;
  line["device"] = m.device;
  put(line, m.use);
  line["time"] = wall_time();
  file_.append(json_text(line) + "\n");
}

void MetricsWriter::write(const TrainMetrics& m) {
  if (m.step == trained_step_) return;
  Json line = {{"event", "train"},
               {"step", m.step},
               {"epoch", m.epoch},
               {"loss", m.loss},
               {"learning_rate", m.learning_rate},
               {"grad_norm", m.grad_norm},
               {"samples_per_second", m.samples_per_second}};
  if (m.tokens_per_second > 0) line["tokens_per_second"] = m.tokens_per_second;
  line.update({{"world_size", m.world_size},
               {"generation", m.generation},
               {"wait_gradients", m.wait_gradients},
               {"wait_data", m.wait_data},
               {"other", m.other}});
  if (m.memory)
    line.update({{"gpu_memory_used", m.memory->used},
                 {"gpu_memory_peak", m.memory->peak},
                 {"gpu_memory_total", m.memory->total}});
  const double time = wall_time();
  line["time"] = time;
  file_.append(json_text(line) + "\n");
  if (events_) events_->add(m.step, time, scalars_of(m));
}

// A run that goes on from its last step evaluates that step again, with the same result, which is not
// written twice.
void MetricsWriter::write(const EvalMetrics& m) {
  if (m.step == evaluated_step_) return;
  Json line = {{"event", "eval"}, {"step", m.step}, {"loss", m.loss}, {"accuracy", m.accuracy}};
  std::vector<Scalar> scalars{{"eval/loss", m.loss}, {"eval/accuracy", m.accuracy}};
  if (m.perplexity) {
    line["perplexity"] = *m.perplexity;
    scalars.push_back({"eval/perplexity", *m.perplexity});
  }
  const double time = wall_time();
  line["time"] = time;
  file_.append(json_text(line) + "\n");
  if (events_) events_->add(m.step, time, scalars);
}

void MetricsWriter::write(const SaveMetrics& m) {
  const Json line = {{"event", "save"},
                     {"step", m.step},
                     {"stall_milliseconds", m.stall_milliseconds},
                     {"time", wall_time()}};
  file_.append(json_text(line) + "\n");
}

void MetricsWriter::write(const EndMetrics& m) {
  Json line = {{"event", "end"}, {"step", m.step}, {"params_sha256", m.params_sha256}};
  if (m.best_step >= 0) line["best_step"] = m.best_step;
  put(line, m.use);
  line["time"] = wall_time();
  file_.append(json_text(line) + "\n");
}

}  // namespace dtrun::worker
