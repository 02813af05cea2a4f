#include "worker/metrics/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "worker/base/error.h"

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

// Whether a line stays when the run goes on after `resume_step`. The end of a run that goes on is none.
bool keeps(std::string_view line, std::int64_t resume_step) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("event", Json()) == "end") return false;
  const Json step = json.value("step", Json());
  return !step.is_number_integer() || step.get<std::int64_t>() <= resume_step;
}

bool is_evaluation_of(std::string_view line, std::int64_t step) {
  const Json json = Json::parse(line, nullptr, false);
  return json.is_object() && json.value("event", Json()) == "eval" && json.value("step", Json()) == step;
}

// The lines to keep of `text`; what follows the last newline is torn.
struct Kept {
  std::string text;
  bool evaluated = false;  // there is an evaluation of the step itself among them
};

Kept kept_lines(std::string_view text, std::int64_t resume_step) {
  Kept kept;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos) break;
    if (keeps(text.substr(0, newline), resume_step)) {
      kept.text += text.substr(0, newline + 1);
      kept.evaluated = kept.evaluated || is_evaluation_of(text.substr(0, newline), resume_step);
    }
    text.remove_prefix(newline + 1);
  }
  return kept;
}

// Returns whether the file holds an evaluation of `resume_step`.
bool rewind(const fs::path& path, std::int64_t resume_step) {
  std::error_code missing;
  if (!fs::exists(path, missing)) return false;
  std::ostringstream stream;
  if (const std::ifstream file(path, std::ios::binary); file) stream << file.rdbuf();
  const std::string text = stream.str();
  const Kept kept = kept_lines(text, resume_step);
  if (kept.text == text) return kept.evaluated;

  const fs::path scratch = path.string() + ".tmp";
  std::ofstream out(scratch, std::ios::binary | std::ios::trunc);
  out << kept.text;
  out.close();
  if (!out) fail("write", scratch, std::strerror(errno));
  std::error_code error;
  fs::rename(scratch, path, error);
  if (error) fail("replace", path, error.message());
  return kept.evaluated;
}

class FileMetrics : public MetricsWriter {
 public:
  // `evaluated_step`: a step whose evaluation the file holds already; -1: none.
  FileMetrics(fs::path path, std::int64_t evaluated_step)
      : path_(std::move(path)),
        evaluated_step_(evaluated_step),
        file_(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail("open", path_, std::strerror(errno));
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
  const std::int64_t evaluated_step_;
  const int file_;
};

}  // namespace

std::unique_ptr<MetricsWriter> open_metrics(const fs::path& output_dir, std::int64_t resume_step) {
  const fs::path path = output_dir / "metrics.jsonl";
  std::error_code error;
  fs::create_directories(output_dir, error);
  if (error) fail("create the directory", output_dir, error.message());
  const bool evaluated = rewind(path, resume_step);
  return std::make_unique<FileMetrics>(path, evaluated ? resume_step : -1);
}

}  // namespace dtrun::worker
