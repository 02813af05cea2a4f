// Runs dtrun as a user does: a real process with its own group, its output read while it runs, and a deadline
// that ends it and its children.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dtrun::test {

struct Ended {
  int exit_code = -1;  // 128+N for signal N; -1: killed at the deadline
  std::string out, err;
};

class Program {
 public:
  using Seconds = std::chrono::duration<double>;

  // argv[0] is looked up in PATH. `extra_environment`: "NAME=value".
  explicit Program(const std::vector<std::string>& argv,
                   const std::vector<std::string>& extra_environment = {});
  ~Program();  // kills what still runs
  Program(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string err_so_far() const;  // what it wrote to stderr up to now
  Ended wait(Seconds limit = Seconds(120));

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  mutable std::mutex mutex_;  // guards the texts in ended_ until the readers have ended
  Ended ended_;
  std::thread out_reader_, err_reader_;
};

Ended run(const std::vector<std::string>& argv, const std::vector<std::string>& extra_environment = {});

// Direct children of `parent` whose command name is `name` (at most 15 characters).
std::vector<pid_t> children_of(pid_t parent, const std::string& name);

// Waits until `condition` holds; false at the deadline.
template <typename Condition>
bool eventually(Condition condition, double limit_s = 60) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string read_file(const std::filesystem::path& path);

// A fresh directory, removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A TCP port that was free a moment ago.
int free_port();

}  // namespace dtrun::test
