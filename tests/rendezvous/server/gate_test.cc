// A gate in a process that has no files left.
#include "rendezvous/server/gate.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/clock.h"

namespace dtrun::rendezvous::gate_test {
namespace {

// While it lives, this process may not open another file.
class NoFiles {
 public:
  NoFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{100, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY))
      fillers_.push_back(fd);
  }
  ~NoFiles() {
    for (const int fd : fillers_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> fillers_;
};

void connect_and_greet(int fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  constexpr std::array<unsigned char, 9> kHello{22, 3, 1, 0, 4, 1};
  REQUIRE(send(fd, kHello.data(), kHello.size(), MSG_NOSIGNAL) == kHello.size());
}

TEST_CASE("a gate that may not open another file waits until it may, and takes no processor for that") {
  const auto gate = Gate::open("127.0.0.1", 0, 50, {});
  REQUIRE(gate);
  std::array<std::promise<int>, 2> handed_over;
  std::size_t count = 0;
  gate->start([&](int fd) { handed_over[count++].set_value(fd); });
  const int before = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  connect_and_greet(before, gate->port());
  auto first = handed_over[0].get_future(), second = handed_over[1].get_future();
  first.wait();  // the gate's thread is up
  std::optional<NoFiles> none(std::in_place);
  connect_and_greet(fd, gate->port());
  const std::clock_t began = std::clock();
  CHECK(second.wait_for(std::chrono::seconds(1)) == std::future_status::timeout);
  CHECK(1000 * (std::clock() - began) / CLOCKS_PER_SEC < 50);
  none.reset();
  for (const int one : {first.get(), second.get(), before, fd}) close(one);
}

// Whether people hear of a peer whose two handshakes end at once, or are given up after `silence`.
bool hears_of(std::chrono::milliseconds silence) {
  std::atomic<int> handed = 0, told = 0;
  const auto gate = Gate::open("127.0.0.1", 0, 50, {}, [&](const std::string&) { ++told; });
  std::array<int, 2> here{}, there{};
  gate->start([&](int fd) { there[static_cast<std::size_t>(handed++)] = fd; });
  for (int& fd : here) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect_and_greet(fd, gate->port());
  }
  std::mutex mutex;
  std::condition_variable nobody;  // the gate has none of its own
  std::unique_lock lock(mutex);
  CHECK(test::wait_for(nobody, lock, std::chrono::seconds(20), [&] { return handed == 2; }));
  std::this_thread::sleep_for(silence);  // by the kernel's clock, which no test can set
  for (const int fd : here) close(fd);
  for (const int fd : there) {
    shutdown(fd, SHUT_RDWR);
    close(fd);
  }
  return test::wait_for(nobody, lock, std::chrono::milliseconds(500), [&] { return told > 0; });
}

TEST_CASE("another key is told of a handshake that fails, and not of one that is given up") {
  CHECK(hears_of(std::chrono::milliseconds(0)));
  CHECK_FALSE(hears_of(std::chrono::milliseconds(2100)));
}

}  // namespace
}  // namespace dtrun::rendezvous::gate_test
