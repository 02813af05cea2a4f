#include "worker/metrics/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/metrics/rewind.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& what, const fs::path& path, const std::string& why) {
  throw WorkerError(kExitConfig, "cannot " + what + " " + path.string() + ": " + why +
                                     "; free some space or choose another output_dir");
}

// Seconds since 1970, for people; nothing is decided by it.
double now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) /
         1000;
}

class FileMetrics : public MetricsWriter {
 public:
  FileMetrics(fs::path path, std::int64_t resume_step)
      : path_(std::move(path)), file_(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail("open", path_, std::strerror(errno));
    const Rewound rewound = rewind_metrics(file_, resume_step);
    if (rewound.error == 0) {
      evaluated_step_ = rewound.evaluated ? resume_step : -1;
      return;
    }
    close(file_);
    fail("take back to the step of the checkpoint", path_, std::strerror(rewound.error));
  }
  ~FileMetrics() override { close(file_); }

  void write(const TrainMetrics& m) override {
    append({{"event", "train"},
            {"step", m.step},
            {"epoch", m.epoch},
            {"loss", m.loss},
            {"learning_rate", m.learning_rate},
            {"grad_norm", m.grad_norm},
            {"samples_per_second", m.samples_per_second},
            {"world_size", m.world_size},
            {"generation", m.generation},
            {"wait_gradients", m.wait_gradients},
            {"wait_data", m.wait_data},
            {"other", m.other},
            {"time", now()}});
  }
  // A run that goes on from its last step evaluates it again, with the same result.
  void write(const EvalMetrics& m) override {
    if (m.step == evaluated_step_) return;
    append(
        {{"event", "eval"}, {"step", m.step}, {"loss", m.loss}, {"accuracy", m.accuracy}, {"time", now()}});
  }
  void write(const EndMetrics& m) override {
    append({{"event", "end"}, {"step", m.step}, {"params_sha256", m.params_sha256}, {"time", now()}});
  }
  bool was_evaluated() const override { return evaluated_step_ >= 0; }

 private:
  // One write for a line, so that a reader or a crash never sees half of one. Values that are not finite
  // become null.
  void append(const Json& json) {
    const std::string line = json.dump() + "\n";
    ssize_t written;
    do {
      written = ::write(file_, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written < 0) fail("write", path_, std::strerror(errno));
    if (static_cast<std::size_t>(written) < line.size()) fail("write", path_, "no space left on the device");
  }

  const fs::path path_;
  const int file_;
  std::int64_t evaluated_step_ = -1;  // a step whose evaluation the file held when it was opened; -1: none
};

}  // namespace

std::unique_ptr<MetricsWriter> open_metrics(const fs::path& output_dir, std::int64_t resume_step) {
  const fs::path path = output_dir / "metrics.jsonl";
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) fail("create the directory", output_dir, error.message());
  return std::make_unique<FileMetrics>(path, resume_step);
}

}  // namespace dtrun::worker
