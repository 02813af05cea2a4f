#include "worker/metrics/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "worker/base/error.h"
#include "worker/metrics/rewind.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxWaiting = 1 << 20;  // bytes of lines that wait for room: some thousand

// Seconds since 1970, for people only.
double now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) /
         1000;
}

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

}  // namespace

MetricsWriter::MetricsWriter(const fs::path& output_dir, std::int64_t resume_step,
                             std::function<void(const std::string&)> notice)
    : path_(file_in(output_dir)),
      notice_(std::move(notice)),
      file_(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw cannot_write("cannot open " + path_.string(), errno);
  const Rewound rewound = rewind_metrics(file_, resume_step);
  if (rewound.error == 0) {
    trained_step_ = rewound.trained ? resume_step : -1;
    evaluated_step_ = rewound.evaluated ? resume_step : -1;
    return;
  }
  close(file_);
  throw cannot_write("cannot take back to the step of the checkpoint " + path_.string(), rewound.error);
}

MetricsWriter::~MetricsWriter() {
  lost_ += std::count(waiting_.begin(), waiting_.end(), '\n');
  if (lost_ > 0)
    notice_(path_.string() + " lacks its last " + std::to_string(lost_) + (lost_ == 1 ? " line" : " lines"));
  close(file_);
}

void MetricsWriter::write(const StartMetrics& m) {
  Json line = {{"event", "start"},           {"step", m.step},   {"parameters", m.parameters},
               {"world_size", m.world_size}, {"lanes", m.lanes}, {"generation", m.generation}};
  line["from"] = m.from;
  line["device"] = m.device;
  std::uint64_t total = 0;
  for (const auto& [name, bytes] : m.memory) line["memory"][name] = bytes, total += bytes;
  if (!m.memory.empty()) line["memory"]["total"] = total;
  put(line, m.use);
  line["time"] = now();
  append(line.dump());
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
  line["time"] = now();
  append(line.dump());
}

// A run that goes on from its last step evaluates that step again, with the same result, which is not
// written twice.
void MetricsWriter::write(const EvalMetrics& m) {
  if (m.step == evaluated_step_) return;
  Json line = {{"event", "eval"}, {"step", m.step}, {"loss", m.loss}, {"accuracy", m.accuracy}};
  if (m.perplexity) line["perplexity"] = *m.perplexity;
  line["time"] = now();
  append(line.dump());
}

void MetricsWriter::write(const SaveMetrics& m) {
  const Json line = {
      {"event", "save"}, {"step", m.step}, {"stall_milliseconds", m.stall_milliseconds}, {"time", now()}};
  append(line.dump());
}

void MetricsWriter::write(const EndMetrics& m) {
  Json line = {{"event", "end"}, {"step", m.step}, {"params_sha256", m.params_sha256}};
  if (m.best_step >= 0) line["best_step"] = m.best_step;
  put(line, m.use);
  line["time"] = now();
  append(line.dump());
}

// One write for a line, so that a reader or a crash never sees half of one, unless there is no room for the
// rest. Values that are not finite become null.
void MetricsWriter::append(const std::string& json) {
  if (waiting_.size() < kMaxWaiting)
    waiting_ += json + "\n";
  else
    ++lost_;
  ssize_t written;
  do {
    written = ::write(file_, waiting_.data(), waiting_.size());
  } while (written < 0 && errno == EINTR);
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  if (!waiting_.empty() && !std::exchange(told_, true))
    notice_(cannot_write("cannot write " + path_.string(), error).what() + std::string("; its lines wait"));
  if (waiting_.empty() && std::exchange(told_, false)) notice_(path_.string() + " can be written again");
}

}  // namespace dtrun::worker
