// A terminal with a program in its foreground: what a user types, and what the user sees.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
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
  bool shows(const std::string& text) {
    fcntl(fd_, F_SETFL, O_NONBLOCK);
    return eventually([&] {
      char chunk[4096];
      for (ssize_t n; (n = read(fd_, chunk, sizeof chunk)) > 0;)
        seen_.append(chunk, static_cast<std::size_t>(n));
      return contains(seen_, text);
    });
  }
  const std::string& seen() const { return seen_; }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
};

}  // namespace dtrun::test
