// A rank that is a process and stops halfway through a large message, and what the sockets to it hold.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/worker/collective/ranks.h"

namespace dtrun::worker {

inline constexpr std::uint32_t kTag = 1;
inline constexpr std::size_t kLarge = 32 << 20;  // more than the sockets hold

// Rank 1 of two, a process that stops once it has begun to receive or send a large message; the test is rank
// 0.
class StoppedPeer {
 public:
  explicit StoppedPeer(bool sends) {
    pid_ = fork_child([&] {
      DirectoryStore store(directory_.path());
      const auto group = connect(1, 2, store, milliseconds(60000));
      std::vector<std::byte> bytes(kLarge);
      const InMessage in{.peer = 0, .tag = kTag, .bytes = bytes};
      const OutMessage out{.peer = 0, .tag = kTag, .bytes = bytes};
      if (sends) group->barrier();  // the test's receive is there
      const auto pending = sends ? group->start({&out, 1}, {}) : group->start({}, {&in, 1});
      raise(SIGSTOP);
      pause();
      return 0;
    });
    DirectoryStore store(directory_.path());
    group = connect(0, 2, store, milliseconds(60000));
  }
  ~StoppedPeer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void await_stop() const {
    int status = 0;
    REQUIRE(waitpid(pid_, &status, WUNTRACED) == pid_);
    REQUIRE(WIFSTOPPED(status));
  }
  void go_on() const { kill(pid_, SIGCONT); }
  void die() const { kill(pid_, SIGKILL); }

  std::size_t open_sockets() const { return sockets_of(std::to_string(pid_)).size(); }
  // Bytes that the one has sent and the other has not read yet.
  std::size_t bytes_to_peer() const { return bytes_between("self", std::to_string(pid_)); }
  std::size_t bytes_from_peer() const { return bytes_between(std::to_string(pid_), "self"); }

  std::unique_ptr<ProcessGroup> group;

 private:
  // As /proc names them.
  static std::set<std::string> sockets_of(const std::string& process) {
    std::set<std::string> sockets;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + process + "/fd")) {
      std::error_code closed;
      const std::string name = std::filesystem::read_symlink(entry, closed);
      if (name.starts_with("socket:")) sockets.insert(name);
    }
    return sockets;
  }
  static std::size_t bytes_between(const std::string& sender, const std::string& receiver) {
    const std::set<std::string> from = sockets_of(sender), to = sockets_of(receiver);
    std::ifstream table("/proc/self/net/tcp");  // proc(5)
    std::size_t bytes = 0;
    for (std::string line; std::getline(table, line);) {
      std::istringstream stream(line);
      const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
      const std::string &queues = words.at(4), socket = "socket:[" + words.at(9) + "]";  // "SENT:RECEIVED"
      if (from.contains(socket)) bytes += std::stoul(queues, nullptr, 16);
      if (to.contains(socket)) bytes += std::stoul(queues.substr(queues.find(':') + 1), nullptr, 16);
    }
    return bytes;
  }

  test::Folder directory_;
  pid_t pid_;
};

}  // namespace dtrun::worker
