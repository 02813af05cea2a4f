// What a connection begins with, by its first bytes; and a gate in a process that has no files left.
#include "rendezvous/server/gate.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <future>
#include <optional>
#include <vector>

namespace dtrun::rendezvous {
namespace {

using Bytes = std::array<unsigned char, kGreetingBytes>;

TEST_CASE("a whole record with a ClientHello is a greeting, also in TLS 1.0's clothes") {
  for (const unsigned char minor : {1, 3, 4}) {
    const Bytes hello{22, 3, minor, 1, 0, 1};
    CHECK(greeting_of(hello.data(), 5 + 256) == Greeting::kHello);
    CHECK(greeting_of(hello.data(), 5 + 256 + 100) == Greeting::kHello);
    for (const int part : {0, 1, 5, 6, 260}) CHECK(greeting_of(hello.data(), part) == Greeting::kMore);
  }
}

TEST_CASE("anything else is none, as soon as that shows") {
  CHECK(greeting_of(Bytes{'P', 'R', 'I'}.data(), 1) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 2}.data(), 2) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0xff, 0xff, 1}.data(), 6) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 0, 3, 1}.data(), 8) == Greeting::kOther);
  CHECK(greeting_of(Bytes{22, 3, 1, 1, 0, 2}.data(), 300) == Greeting::kOther);
  CHECK(greeting_of(Bytes{23, 3, 3, 1, 0, 1}.data(), 300) == Greeting::kOther);
}

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
  const auto gate = Gate::open("127.0.0.1", 0, 50);
  REQUIRE(gate);
  std::promise<int> handed_over;
  auto first = handed_over.get_future();
  gate->start([&](int fd) { handed_over.set_value(fd); });
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::optional<NoFiles> none(std::in_place);
  connect_and_greet(fd, gate->port());
  const std::clock_t before = std::clock();
  CHECK(first.wait_for(std::chrono::seconds(1)) == std::future_status::timeout);
  CHECK(1000 * (std::clock() - before) / CLOCKS_PER_SEC < 50);
  none.reset();
  REQUIRE(first.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  close(first.get());
  close(fd);
}

}  // namespace
}  // namespace dtrun::rendezvous
