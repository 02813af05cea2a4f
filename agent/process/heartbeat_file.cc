#include "agent/process/heartbeat_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "agent/process/control_json.h"
#include "proto/base/descriptor.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "proto/core/utf8.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

// Changes whenever the file is touched, written or replaced; 0 if there is none.
std::uint64_t mark_of(const struct stat& info) {
  const auto time = static_cast<std::uint64_t>(info.st_mtim.tv_sec) * 1000000000u +
                    static_cast<std::uint64_t>(info.st_mtim.tv_nsec);
  return time ^ (static_cast<std::uint64_t>(info.st_ino) << 32) ^
         (static_cast<std::uint64_t>(info.st_size) << 50);
}

std::uint64_t mark_of(const std::filesystem::path& file) {
  struct stat info {};
  return !file.empty() && stat(file.c_str(), &info) == 0 ? mark_of(info) : 0;
}

// Python writes NaN and Infinity where JSON has no word.
std::string without_such_numbers(const std::string& text) {
  static constexpr std::string_view kNames[] = {"-Infinity", "Infinity", "NaN"};
  std::string clean;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto* name = std::ranges::find_if(
        kNames, [&](std::string_view each) { return text.compare(at, each.size(), each) == 0; });
    if (!quoted && name != std::end(kNames)) {
      clean += "null";
      at += name->size();
      continue;
    }
    if (quoted && text[at] == '\\' && at + 1 < text.size()) clean += text[at++];
    quoted ^= text[at] == '"';
    clean += text[at++];
  }
  return clean;
}

std::optional<double> seconds_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto seconds = found->get<double>();
  return seconds >= 0 ? std::optional(seconds) : std::nullopt;
}

Status no_report(const std::string& why) { return {kExitSoftware, why}; }

}  // namespace

// The converter is that of the control socket, so both take the same names.
Result<std::optional<HeartbeatReport>> heartbeat_report_in(const std::string& text) {
  if (!trimmed(text).starts_with("{")) return std::optional<HeartbeatReport>();
  Json object = parse_json(without_such_numbers(text));
  if (!object.is_object()) return no_report("it is no JSON object: " + printable_line(text.substr(0, 100)));
  if (!object.contains("step") || object["step"].is_null()) return no_report("it has no \"step\"");
  if (object.contains("total")) object["total_steps"] = object["total"];
  const auto message = from_json_line(ascii_json_text({{"progress", object}}));
  if (!message.ok()) return no_report(message.status().message());
  HeartbeatReport report{.progress = message.value().progress(),
                         .waited = seconds_in(object, "wait_s"),
                         .waited_for_data = seconds_in(object, "data_s")};
  training::Progress& progress = report.progress;
  if (progress.step() < 0) return no_report("\"step\" is negative");
  progress.set_total_steps(std::max<std::int64_t>(0, progress.total_steps()));
  if (!std::isfinite(progress.loss())) progress.clear_loss();
  if (!std::isfinite(progress.accuracy())) progress.clear_accuracy();
  if (!(progress.samples_per_second() >= 0)) progress.clear_samples_per_second();
  progress.clear_step_times();
  return std::optional(report);
}

std::optional<StepTimes> ReportedTimes::add(const HeartbeatReport& report, double seconds) {
  if (!report.waited && !report.waited_for_data) return std::nullopt;
  const TimedReport now{.step = report.progress.step(),
                        .seconds = seconds,
                        .waited = report.waited.value_or(0),
                        .data = report.waited_for_data.value_or(0)};
  const std::optional<TimedReport> before = std::exchange(newest_, now);
  if (!before) return std::nullopt;
  const bool anew = now.step < before->step || now.waited < before->waited || now.data < before->data;
  if (anew) return times_;
  const double waited = now.waited - before->waited, data = now.data - before->data;
  times_.steps += now.step - before->step;
  times_.wait_peers += waited;
  times_.data += data;
  times_.math += std::max(0.0, now.seconds - before->seconds - waited - data);
  return times_;
}

HeartbeatFile::HeartbeatFile(std::filesystem::path path)
    : path_(std::move(path)), first_(mark_of(path_)), read_(first_) {}

std::optional<std::uint64_t> HeartbeatFile::touches() const {
  const std::uint64_t mark = mark_of(path_);
  return mark == first_ ? std::nullopt : std::optional(mark);
}

std::optional<training::Progress> HeartbeatFile::look() {
  if (path_.empty() || mark_of(path_) == read_) return std::nullopt;
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.open() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  const std::uint64_t mark = mark_of(info);
  std::string text(std::min<std::size_t>(static_cast<std::size_t>(info.st_size), kLargest + 1), '\0');
  const ssize_t n = pread(file.get(), text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  auto report = text.size() > kLargest ? no_report("it is larger than 64 KiB") : heartbeat_report_in(text);
  if (!report.ok()) {
    // It may be half written: only what stays so is a fault.
    if (broken_ != mark) return broken_ = mark, std::nullopt;
    read_ = mark;
    if (!std::exchange(told_, true)) fault_ = report.status().message();
    return std::nullopt;
  }
  read_ = mark;
  if (!report.value()) return std::nullopt;
  HeartbeatReport& found = *report.value();
  const double written =
      static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) / 1e9;
  if (const std::optional<StepTimes> times = times_.add(found, written)) {
    training::StepTimes* const wire = found.progress.mutable_step_times();
    wire->set_steps(times->steps);
    wire->set_math(times->math);
    wire->set_data(times->data);
    wire->set_wait_peers(times->wait_peers);
  }
  return found.progress;
}

std::string HeartbeatFile::take_fault() { return std::exchange(fault_, ""); }

}  // namespace dtrun::agent
