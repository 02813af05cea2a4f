#include "agent/job_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "agent/report_file.h"
#include "proto/base/ids.h"
#include "proto/base/record_lock.h"
#include "proto/base/text_in.h"
#include "proto/json/fields.h"

namespace dtrun::agent {

DTRUN_JSON(RegisteredJob, run_id, host, port, pid, node, has_key, key, is_ready)

namespace {

// True if the folder is this user's alone: in /tmp any user could have made a folder of that name.
bool is_private(const std::filesystem::path& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 022) == 0;
}

bool is_held(const std::filesystem::path& file) {
  const Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd.open() && lock_holder(fd.get());
}

std::string line_of(const RegisteredJob& job) { return json_text(job) + "\n"; }

// The job's line, then the run's report.
std::optional<EndedJob> end_in(const std::filesystem::path& file) {
  const std::string text = text_in(file);
  const std::size_t line = std::min(text.find('\n'), text.size());
  auto job = parsed<RegisteredJob>(text.substr(0, line));
  auto end = ended_job_of(text.substr(line));
  if (!job || !end) return std::nullopt;
  end->job = *std::move(job);
  return end;
}

// An agent that was killed while it made a file leaves it under this name.
constexpr char kUnfinished[] = ".new", kLiving[] = ".json", kEnded[] = ".ended";

// Begins with the time, so that names alone tell which are old: a launch has no time to read hundreds of
// files.
std::string name_of_end(double ended_at, const std::string& stem) {
  std::array<char, 16> time{};
  std::snprintf(time.data(), time.size(), "%012lld", static_cast<long long>(ended_at));
  return time.data() + ("-" + stem) + kEnded;
}

// Removes the files of ends that are old, or too many; returns the others.
std::vector<std::filesystem::path> keep_recent_ends(const std::filesystem::path& folder, double now) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == kEnded) files.push_back(entry.path());
  std::sort(files.begin(), files.end(), std::greater<>());
  const std::string oldest = name_of_end(now - kKeepEndedSeconds, "~");  // after all of that second
  std::erase_if(files, [&, kept = std::size_t{0}](const std::filesystem::path& file) mutable {
    const bool keep = file.filename().string() > oldest && kept++ < kMaxEndedJobs;
    if (!keep) unlink(file.c_str());
    return !keep;
  });
  return files;
}

}  // namespace

std::filesystem::path registry_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::filesystem::path(runtime) / "dtrun";
  return "/tmp/dtrun-" + std::to_string(geteuid());
}

JobEntry::JobEntry(const std::filesystem::path& folder, const RegisteredJob& job) : job_(job) {
  mkdir(folder.c_str(), 0700);
  struct stat there {};
  if (!is_private(folder)) {
    if (lstat(folder.c_str(), &there) == 0) foreign_folder_ = folder;
    return;
  }
  file_ = folder / (std::to_string(job.pid) + "-" + random_id(4) + kLiving);
  write();
}

std::string JobEntry::notice() const {
  if (foreign_folder_.empty()) return "";
  return foreign_folder_.string() +
         " is not this user's alone, so dtrun status finds this job by --rdzv_endpoint only";
}

// The file gets its name once it is locked: a reader of the registry takes a file without a lock for a dead
// agent's.
void JobEntry::write() {
  std::filesystem::path unlocked = file_;
  unlocked.replace_extension(kUnfinished);
  Descriptor fd(open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.open()) return;
  (void)lock_whole(fd.get());
  const std::string text = line_of(job_);
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), text.data(), text.size());
  rename(unlocked.c_str(), file_.c_str());
  lock_ = std::move(fd);
}

void JobEntry::set_ready(bool is_ready) {
  if (!lock_.open() || is_ready == job_.is_ready) return;
  job_.is_ready = is_ready;
  write();
}

JobEntry::~JobEntry() {
  if (lock_.open()) unlink(file_.c_str());
}

// The new file comes first, then the old one goes: a reader that lists running and ended jobs in this order
// misses neither.
void JobEntry::finish(EndedJob ended) {
  if (!lock_.open()) return;
  ended.job = job_;
  ended.job.key.clear();
  ended.end.verdict.reset();
  ended.end.first_failure.reset();
  ended.end.hang.reset();
  ended.end.followers.clear();
  const std::filesystem::path folder = file_.parent_path();
  std::filesystem::path unfinished = file_;
  unfinished.replace_extension(kUnfinished);
  std::ofstream(unfinished) << line_of(ended.job) << report_json(ended, ended.job.host);
  rename(unfinished.c_str(), (folder / name_of_end(ended.ended_at, file_.stem())).c_str());
  keep_recent_ends(folder, ended.ended_at);
}

Entered enter_in_registry(Disk& disk, RegisteredJob job) {
  const std::filesystem::path folder = registry_folder();
  const auto made = std::make_shared<Entered>();
  const bool done = disk.run([made, folder, job = std::move(job)] {
    made->entry = std::make_shared<JobEntry>(folder, job);
    made->notice = made->entry->notice();
  });
  if (done) return std::move(*made);
  return {
      .entry = nullptr,
      .notice = folder.string() + " does not answer, so dtrun status finds this job by --rdzv_endpoint only"};
}

std::vector<RegisteredJob> registered_jobs(const std::filesystem::path& folder) {
  std::vector<RegisteredJob> jobs;
  if (!is_private(folder)) return jobs;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != kLiving) continue;
    if (!is_held(entry.path()))
      unlink(entry.path().c_str());
    else if (auto job = parsed<RegisteredJob>(text_in(entry.path())))
      jobs.push_back(*std::move(job));
  }
  const auto key = [](const RegisteredJob& job) { return std::tie(job.run_id, job.host, job.port, job.pid); };
  std::sort(jobs.begin(), jobs.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return jobs;
}

std::vector<EndedJob> ended_jobs(const std::filesystem::path& folder, double now) {
  if (!is_private(folder)) return {};
  std::vector<EndedJob> ends;
  for (const std::filesystem::path& file : keep_recent_ends(folder, now))
    if (auto end = end_in(file)) ends.push_back(*std::move(end));
  std::stable_sort(ends.begin(), ends.end(),
                   [](const auto& a, const auto& b) { return a.ended_at > b.ended_at; });
  std::set<std::string> seen;
  std::erase_if(ends, [&](const EndedJob& ended) { return !seen.insert(ended.job.run_id).second; });
  return ends;
}

}  // namespace dtrun::agent
