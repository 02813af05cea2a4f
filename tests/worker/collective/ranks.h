// Ranks of a process group on this machine: as threads of the test, or as forked processes that can be
// killed. They find each other through a store in memory or in a directory, and talk over loopback as real
// workers do.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/clock.h"
#include "worker/base/error.h"
#include "worker/collective/process_group.h"

namespace dtrun::worker {

using std::chrono::milliseconds;

class MemoryStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value, std::stop_token) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, milliseconds timeout, std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, stop, timeout, [&] { return values_.contains(key); })) {
      throw WorkerError(kExitWorkerPeerLost, "no " + key);
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::string> values_;
};

// For processes: a file per key. Other processes' files come without an event, so it looks every millisecond.
class DirectoryStore final : public KeyValueStore {
 public:
  explicit DirectoryStore(std::filesystem::path directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }
  void set(const std::string& key, const std::string& value, std::stop_token) override {
    const auto scratch = path(key).string() + "." + std::to_string(getpid());
    std::ofstream(scratch, std::ios::binary) << value;
    std::filesystem::rename(scratch, path(key));
  }
  std::string get(const std::string& key, milliseconds timeout, std::stop_token stop) override {
    const test::Patience patience(timeout);
    while (!std::filesystem::exists(path(key))) {
      if (stop.stop_requested() || patience.is_over()) throw WorkerError(kExitWorkerPeerLost, "no " + key);
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::ostringstream text;
    text << std::ifstream(path(key), std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path path(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '_';
    }
    return directory_ / key;
  }
  std::filesystem::path directory_;
};

inline std::unique_ptr<ProcessGroup> connect(int rank, int world, KeyValueStore& store,
                                             milliseconds timeout) {
  if (world == 1) return make_single_process_group();
  std::signal(SIGPIPE, SIG_IGN);  // as dtrun-worker: gloo writes to sockets whose peer may be gone
  ProcessGroupOptions options{rank, world, "127.0.0.1"};
  options.connect_timeout = milliseconds(30000);
  options.timeout = timeout;
  return make_gloo_process_group(options, store);
}

// Runs `rank_main` on `world` threads at once; rethrows the first rank's exception, if any.
inline void run_as_threads(int world, const std::function<void(ProcessGroup&)>& rank_main,
                           milliseconds timeout = milliseconds(20000)) {
  MemoryStore store;
  std::vector<std::exception_ptr> failures(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = connect(rank, world, store, timeout);
        rank_main(*group);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// A child that runs `child_main` and exits with its result, or with a WorkerError's code. The caller must
// have no other threads.
inline pid_t fork_child(const std::function<int()>& child_main) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int code = kExitSoftware;
  try {
    code = child_main();
  } catch (const WorkerError& error) {
    code = error.exit_code();
  } catch (...) {
  }
  _exit(code);
}

// Whether the process ends within `limit`.
inline bool ends_within(pid_t pid, milliseconds limit) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd event{fd, POLLIN, 0};
  const test::Patience patience(limit);
  while (poll(&event, 1, 50) == 0 && !patience.is_over()) {
  }
  close(fd);
  return event.revents != 0;
}

// The status of waitpid; nothing, after killing it, if the child lives longer than `patience`.
inline std::optional<int> wait_for_exit(pid_t pid, milliseconds patience) {
  const bool ended = ends_within(pid, patience);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  return ended ? std::optional<int>(status) : std::nullopt;
}

}  // namespace dtrun::worker
