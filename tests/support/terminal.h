// A terminal with a program in its foreground: the user's input and screen.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace dtrun::test {

class Terminal {
 public:
  // `argv[0]` is a path; `environment` ("NAME=value") is added to this process's own.
  explicit Terminal(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {}) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Terminal() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(fd_);
  }
  Terminal(const Terminal&) = delete;

  void type(const std::string& text) { CHECK(write(fd_, text.data(), text.size()) == ssize_t(text.size())); }
  // False at the deadline, and at the program's end.
  bool shows(const std::string& text, Process::Duration limit = Process::Duration(60000)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (std::size_t from = 0; seen_.find(text, from) == std::string::npos;) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      from = seen_.size() - std::min(seen_.size(), text.size());
      pollfd entry{fd_, POLLIN, 0};
      if (poll(&entry, 1, 100) <= 0) continue;
      char chunk[65536];
      const ssize_t n = read(fd_, chunk, sizeof chunk);
      if (n <= 0) return false;
      seen_.append(chunk, static_cast<std::size_t>(n));
    }
    return true;
  }
  const std::string& seen() const { return seen_; }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
};

}  // namespace dtrun::test
