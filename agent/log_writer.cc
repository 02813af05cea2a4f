#include "agent/log_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrun::agent {

std::string run_folder(const std::string& run_id) {
  std::string folder = run_id;
  std::replace(folder.begin(), folder.end(), '/', '_');
  return folder.empty() || folder == "." || folder == ".." ? "_" + folder : folder;
}

std::filesystem::path worker_log_dir(const std::filesystem::path& log_dir, const std::string& run_id,
                                     std::int64_t generation, int rank) {
  if (log_dir.empty()) return {};
  return log_dir / run_folder(run_id) / ("attempt_" + std::to_string(generation)) / std::to_string(rank);
}

LogWriter::LogWriter(Console& console, Console::Stream stream, std::string prefix,
                     const std::filesystem::path& file)
    : console_(console), stream_(stream), prefix_(std::move(prefix)), file_name_(file.string()) {
  if (file.empty()) return;
  file_.reset(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.open()) console_.notice("cannot write " + file_name_ + ": " + std::strerror(errno));
}

void LogWriter::push(std::string_view bytes) {
  write_file(bytes);
  cutter_.push(bytes, [this](std::string_view line) { take_line(line); });
  show();
}

void LogWriter::finish() {
  cutter_.finish([this](std::string_view line) { take_line(line); });
  show();
  file_.reset();
}

void LogWriter::write_file(std::string_view bytes) {
  while (file_.open() && !bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0) {
      console_.notice("cannot write " + file_name_ + ": " + std::strerror(errno) +
                      "; this worker's output goes to the console only from here on");
      file_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void LogWriter::take_line(std::string_view line) {
  shown_.append(prefix_).append(line).push_back('\n');
  tail_.push(line);
}

void LogWriter::show() {
  if (!shown_.empty()) console_.write(stream_, shown_);
  shown_.clear();
}

}  // namespace dtrun::agent
