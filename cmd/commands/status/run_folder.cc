#include "cmd/commands/status/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "agent/report_file.h"
#include "cmd/history/lines.h"
#include "proto/base/text_in.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "proto/json/json.h"

namespace dtrun::cmd {
namespace {

namespace fs = std::filesystem;

constexpr const char *kEvents = "events.jsonl", *kReport = "report.json", *kMetrics = "metrics.jsonl",
                     *kConfig = "config.json";

// The runs of a LOG_DIR, the newest first.
std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> runs;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored) || !is_run_folder(entry.path())) continue;
    const fs::path& path = entry.path();
    fs::file_time_type newest = fs::file_time_type::min();
    for (const char* name : {kEvents, kReport, kMetrics})
      if (const auto time = fs::last_write_time(path / name, ignored); !ignored)
        newest = std::max(newest, time);
    runs.emplace_back(newest, path);
  }
  std::ranges::sort(runs, std::greater<>());
  std::vector<fs::path> paths;
  for (auto& [time, path] : runs) paths.push_back(std::move(path));
  return paths;
}

std::optional<uid_t> owner_of(const fs::path& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? std::optional(facts.st_uid) : std::nullopt;
}

// A report is made for others to read, and a folder of another user may have links to what its reader alone
// may read. The reader's own files may lie in such a folder, as in the root of a volume.
bool belongs(const fs::path& file, int fd) {
  struct stat opened {
  }, entry{};
  if (fstat(fd, &opened) != 0 || lstat(file.c_str(), &entry) != 0) return false;
  const bool is_link = entry.st_ino != opened.st_ino || entry.st_dev != opened.st_dev || opened.st_nlink > 1;
  return opened.st_uid == owner_of(file.parent_path()) || (!is_link && opened.st_uid == geteuid());
}

// A file to read, or a remark on why there is none. One that is not there is none if `may_lack`.
Descriptor open(const fs::path& file, bool may_lack, std::vector<std::string>* remarks) {
  std::error_code ignored;
  if (may_lack && !fs::exists(fs::symlink_status(file, ignored))) return {};
  Result<Descriptor> opened = open_regular(file);
  if (!opened.ok()) {
    remarks->push_back(opened.status().message());
    return {};
  }
  if (belongs(file, opened.value().get())) return std::move(opened).value();
  remarks->push_back(file.string() + " has another owner than its folder, and is left out");
  return {};
}

std::ifstream stream_of(const Descriptor& file) {
  return std::ifstream("/proc/self/fd/" + std::to_string(file.get()), std::ios::binary);
}

// A document's text; more than kMostOfLine of it is none.
std::optional<std::string> document_in(const fs::path& file, std::vector<std::string>* remarks) {
  const Descriptor opened = open(file, true, remarks);
  if (!opened.open()) return std::nullopt;
  std::string text(kMostOfLine + 1, '\0');
  std::ifstream stream = stream_of(opened);
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

void remark_unreadable(const fs::path& file, int lines, std::vector<std::string>* remarks) {
  if (lines > 0)
    remarks->push_back(file.string() + ": " + counted(lines, "line") + " cannot be read and " +
                       (lines == 1 ? "is" : "are") + " left out");
}

Json read_json(const fs::path& file, std::vector<std::string>* remarks) {
  const std::optional<std::string> text = document_in(file, remarks);
  if (!text) return nullptr;
  auto json = text->size() > kMostOfLine ? Json() : parse_json(*text);
  if (json.is_object()) return json;
  remarks->push_back(file.string() + " is no JSON object, and is left out");
  return nullptr;
}

JobLife read_life(const fs::path& file, double alive_at, std::vector<std::string>* remarks) {
  const Descriptor opened = open(file, false, remarks);
  JobLife life;
  if (opened.open()) {
    std::ifstream stream = stream_of(opened);
    life = read_events(stream, alive_at);
  }
  remark_unreadable(file, life.unreadable, remarks);
  return life;
}

MetricsLog read_log(const fs::path& file, std::vector<std::string>* remarks) {
  const Descriptor opened = open(file, true, remarks);
  MetricsLog log;
  if (opened.open()) {
    std::ifstream stream = stream_of(opened);
    log = read_metrics(stream);
  }
  remark_unreadable(file, log.unreadable, remarks);
  return log;
}

// Metrics and config are in the output directory, which may be another folder than that of the events.
fs::path output_dir_of(const fs::path& folder, const std::string& in_events,
                       std::vector<std::string>* remarks) {
  std::error_code ignored;
  if (fs::exists(folder / kMetrics, ignored) || in_events.empty()) return folder;
  if (owner_of(in_events) == owner_of(folder)) return in_events;
  if (fs::exists(in_events, ignored))
    remarks->push_back("the output_dir, " + in_events + ", has another owner than " + folder.string() +
                       ", and is left out: name it instead");
  return folder;
}

}  // namespace

bool is_run_folder(const fs::path& path) {
  std::error_code ignored;
  return std::ranges::any_of(std::array{kEvents, kReport, kMetrics},
                             [&](const char* name) { return fs::exists(path / name, ignored); });
}

Result<RunFolder> find_run_folder(const std::string& given) {
  std::error_code error;
  fs::path path = given;
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();  // "runs/x/"
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return errno_status(kExitNoInput, given, ENOENT);
  if (!fs::is_directory(status)) path = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_run_folder(path)) return RunFolder{path, {}};
  const std::vector<fs::path> runs = runs_in(path);
  if (runs.empty())
    return Status(kExitNoInput, given +
                                    ": no run left anything here (events.jsonl, report.json, metrics.jsonl); "
                                    "name a job's output_dir, or LOG_DIR/RUN_ID");
  RunFolder found{runs.front(), {}};
  if (runs.size() > 1)
    found.remarks.push_back(given + " has " + std::to_string(runs.size()) + " runs; this is the newest, " +
                            runs.front().filename().string() + ", before it came " +
                            runs[1].filename().string());
  return found;
}

std::string run_id_in(const RunFolder& folder) {
  std::vector<std::string> ignored;
  return read_life(folder.path / kEvents, 0, &ignored).run_id;
}

std::optional<agent::EndedJob> end_in(const RunFolder& folder) {
  std::vector<std::string> ignored;
  return agent::ended_job_of(document_in(folder.path / kReport, &ignored).value_or(""));
}

RunRecord read_run(const RunFolder& folder, const std::string& name) {
  RunRecord record{
      .name = name, .metrics = {}, .life = {}, .report = {}, .config = {}, .remarks = folder.remarks};
  std::vector<std::string> told_below;
  const std::string in_events = read_life(folder.path / kEvents, 0, &told_below).output_dir;
  const fs::path output = output_dir_of(folder.path, in_events, &record.remarks);
  record.metrics = read_log(output / kMetrics, &record.remarks);
  record.life = read_life(folder.path / kEvents, record.metrics.last_time, &record.remarks);
  record.report = read_json(folder.path / kReport, &record.remarks);
  record.config = read_json(output / kConfig, &record.remarks);
  return record;
}

}  // namespace dtrun::cmd
