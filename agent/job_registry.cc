#include "agent/job_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>

#include "proto/base/ids.h"

namespace dtrun::agent {
namespace {

// A record lock belongs to the process: neither workers nor the guardian inherit it.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Ours alone: in /tmp anybody could have made a folder of that name.
bool is_private(const std::filesystem::path& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 022) == 0;
}

bool is_held(const std::filesystem::path& file) {
  const Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = whole_file(F_WRLCK);
  return fd.open() && fcntl(fd.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::optional<RegisteredJob> read_entry(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  RegisteredJob job;
  job.run_id = json.value("run_id", "");
  job.host = json.value("host", "");
  job.port = json.value("port", 0);
  job.pid = json.value("pid", 0);
  if (job.host.empty() || job.port <= 0) return std::nullopt;
  return job;
}

}  // namespace

std::filesystem::path registry_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::filesystem::path(runtime) / "dtrun";
  return "/tmp/dtrun-" + std::to_string(geteuid());
}

JobEntry::JobEntry(const std::filesystem::path& folder, const RegisteredJob& job) {
  mkdir(folder.c_str(), 0700);
  if (!is_private(folder)) return;
  const std::string name = std::to_string(job.pid) + "-" + random_id(4);
  file_ = folder / (name + ".json");
  // It gets its name once it is locked: without a lock whoever lists the jobs takes it for a dead agent's.
  const std::filesystem::path unlocked = folder / (name + ".new");
  lock_.reset(open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock_.open()) return;
  struct flock lock = whole_file(F_WRLCK);
  fcntl(lock_.get(), F_SETLK, &lock);
  const nlohmann::ordered_json json = {
      {"run_id", job.run_id}, {"host", job.host}, {"port", job.port}, {"pid", job.pid}};
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t written = write(lock_.get(), text.data(), text.size());
  rename(unlocked.c_str(), file_.c_str());
}

JobEntry::~JobEntry() {
  if (lock_.open()) unlink(file_.c_str());
}

std::vector<RegisteredJob> registered_jobs(const std::filesystem::path& folder) {
  std::vector<RegisteredJob> jobs;
  if (!is_private(folder)) return jobs;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".json") continue;
    if (!is_held(entry.path()))
      unlink(entry.path().c_str());
    else if (auto job = read_entry(entry.path()))
      jobs.push_back(*std::move(job));
  }
  const auto key = [](const RegisteredJob& job) { return std::tie(job.run_id, job.host, job.port, job.pid); };
  std::sort(jobs.begin(), jobs.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return jobs;
}

}  // namespace dtrun::agent
