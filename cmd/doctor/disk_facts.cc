#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "cmd/doctor/node_facts.h"
#include "proto/base/descriptor.h"
#include "proto/base/ids.h"
#include "worker/data/dataset.h"
#include "worker/memory/need.h"

namespace dtrun::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostWritten = 64u << 20, kBlock = 1u << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The folder itself, or the nearest that is there: a run makes what is missing.
fs::path nearest_folder(const fs::path& directory) {
  std::error_code error;
  fs::path existing = fs::absolute(directory, error);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  return existing;
}

// A file with a name of its own; it goes with this object.
class TrialFile {
 public:
  explicit TrialFile(const fs::path& folder)
      : path_(folder / (".dtrun-doctor-" + random_id(6))),
        fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {}
  ~TrialFile() {
    for (const std::string& name : {path_.string(), renamed()}) unlink(name.c_str());
  }
  TrialFile(const TrialFile&) = delete;

  int fd() const { return fd_.get(); }
  std::string renamed() const { return path_.string() + ".new"; }
  bool rename() const { return std::rename(path_.c_str(), renamed().c_str()) == 0; }
  // Its bytes stay until it is closed, and go with the process however that ends.
  void forget_name() const { unlink(path_.c_str()); }

 private:
  const fs::path path_;
  const Descriptor fd_;
};

// Bytes per second of a file that is surely on the disk; -1: errno tells.
double write_rate(int fd, std::size_t most) {
  constexpr double kLongEnough = 0.4;  // seconds
  const std::vector<char> block(kBlock, 'd');
  const auto begin = Clock::now();
  std::size_t written = 0;
  while (written < most && seconds_since(begin) < kLongEnough) {
    const ssize_t n = write(fd, block.data(), std::min(kBlock, most - written));
    if (n < 0 && errno != EINTR) return -1;
    written += static_cast<std::size_t>(std::max<ssize_t>(0, n));
  }
  if (fdatasync(fd) != 0) return -1;
  return static_cast<double>(written) / seconds_since(begin);
}

void try_writing(const fs::path& folder, DiskFacts* disk) {
  const TrialFile file(folder);
  const auto fails = [disk](const std::string& what) {
    disk->problem = what + ": " + std::strerror(errno);
    return true;
  };
  if (file.fd() < 0 && fails("cannot write")) return;
  if (flock(file.fd(), LOCK_EX | LOCK_NB) != 0) disk->lock_problem = std::strerror(errno);
  if (!file.rename() && fails("cannot rename a file")) return;
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fsync(directory.get()) != 0 && errno != EINVAL && fails("fsync")) return;
  unlink(file.renamed().c_str());
  const auto half = static_cast<std::size_t>(std::max<std::int64_t>(0, disk->free)) / 2;
  disk->write_rate = write_rate(file.fd(), std::min(kMostWritten, half));
  if (disk->write_rate < 0) fails("cannot write");
}

void read_output(const BuiltinTrainer& trainer, DiskFacts* disk) {
  disk->output_dir = trainer.output_dir;
  const fs::path folder = nearest_folder(trainer.output_dir);
  struct statvfs system {};
  if (statvfs(folder.c_str(), &system) == 0)
    disk->free = static_cast<std::int64_t>(system.f_bavail * system.f_frsize);
  try_writing(folder, disk);
}

// The file, or the largest one of the folder.
fs::path file_to_read(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  fs::path largest;
  std::uintmax_t most = 0;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (!entry.is_regular_file(error)) continue;
    if (const auto size = entry.file_size(error); size > most) most = size, largest = entry.path();
  }
  return largest;
}

double read_rate(const fs::path& path) {
  constexpr double kLongEnough = 0.3;  // seconds
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<char> block(kBlock);
  const auto begin = Clock::now();
  std::size_t sum = 0;
  while (sum < kMostWritten && seconds_since(begin) < kLongEnough) {
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n <= 0) break;
    sum += static_cast<std::size_t>(n);
  }
  return sum > 0 ? static_cast<double>(sum) / seconds_since(begin) : -1;
}

void read_data(const worker::JobConfig& config, DiskFacts* disk) {
  disk->data = config.data.path;
  const auto data = worker::check_dataset(config.data);
  if (!data.ok()) {
    disk->data_problem = data.status().message();
    return;
  }
  const Result<std::uint64_t> bytes = worker::checkpoint_bytes(config, data.value());
  if (bytes.ok()) disk->checkpoint = static_cast<std::int64_t>(bytes.value());
  if (!disk->data.empty()) disk->read_rate = read_rate(file_to_read(disk->data));
}

}  // namespace

DiskFacts read_disks(const JobSpec& spec) {
  DiskFacts disk;
  const auto* const trainer = std::get_if<BuiltinTrainer>(&spec.program);
  if (trainer == nullptr) return disk;
  const Result<worker::JobConfig> config = worker::parse_config(trainer->config_json, "config", {});
  if (config.ok()) read_data(config.value(), &disk);
  if (!trainer->output_dir.empty()) read_output(*trainer, &disk);
  return disk;
}

}  // namespace dtrun::doctor
