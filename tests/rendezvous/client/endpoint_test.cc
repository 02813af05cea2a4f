// Dialling a host whose name has several addresses, with a name service made for the test: this program's
// getaddrinfo takes the place of the C library's.
#include "rendezvous/client/endpoint.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <thread>
#include <vector>

#include "tests/support/clock.h"

namespace dtrun::rendezvous::endpoint_test {
namespace {

using std::chrono::milliseconds;

// The answer of the name service, and its delay.
std::vector<int> ports;
milliseconds takes{0};

struct Entry {
  addrinfo info{};
  sockaddr_in address{};
};

std::list<Entry> entries_of(const std::vector<int>& ports) {
  std::list<Entry> entries;
  for (int port : ports) {
    Entry& entry = entries.emplace_back();
    entry.address.sin_family = AF_INET;
    entry.address.sin_port = htons(static_cast<std::uint16_t>(port));
    entry.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    entry.info.ai_family = AF_INET;
    entry.info.ai_socktype = SOCK_STREAM;
    entry.info.ai_addrlen = sizeof entry.address;
  }
  addrinfo* next = nullptr;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    entry->info.ai_addr = reinterpret_cast<sockaddr*>(&entry->address);
    entry->info.ai_next = next;
    next = &entry->info;
  }
  return entries;
}

std::list<Entry> answer;

}  // namespace

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo** found) {
  std::this_thread::sleep_for(takes);
  answer = entries_of(ports);
  *found = &answer.front().info;
  return 0;
}
extern "C" void freeaddrinfo(addrinfo*) noexcept { answer.clear(); }

namespace {

class Listener {
 public:
  explicit Listener(int backlog) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto entries = entries_of({0});
    sockaddr_in& address = entries.front().address;
    socklen_t size = sizeof address;
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(fd_, backlog) == 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() {
    for (int fd : callers_) close(fd);
    close(fd_);
  }
  Listener(const Listener&) = delete;

  // Nobody accepts, and no more may wait for it: new connections get no answer at all.
  void fall_deaf() {
    const auto entries = entries_of({port_});
    for (int i = 0; i < 4; ++i) {
      callers_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      (void)connect(callers_.back(), entries.front().info.ai_addr, entries.front().info.ai_addrlen);
    }
  }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
  std::vector<int> callers_;
};

}  // namespace

TEST_CASE("an address that never answers leaves the next one time to do so") {
  Listener deaf(0), live(8);
  deaf.fall_deaf();
  ports = {deaf.port(), live.port()};
  takes = milliseconds(0);
  const Interrupt never;
  const test::Stopwatch watch;
  const Dialled dialled = dial("two", 1, test::soon(milliseconds(6000)), never);
  CHECK_MESSAGE(dialled.fd >= 0, dialled.error);
  CHECK(watch.fair() < milliseconds(5500));  // this host's answer comes at once
  CHECK(dialled.local_address == "127.0.0.1");
  close(dialled.fd);
  ports = {deaf.port(), deaf.port()};
  const Dialled neither = dial("two", 1, milliseconds(100), never);
  CHECK(neither.fd == -1);
  CHECK(neither.error == "Connection timed out");
}

TEST_CASE("a slow name service does not use up the time to connect") {
  Listener deaf(0);
  deaf.fall_deaf();
  ports = {deaf.port()};
  takes = milliseconds(300);
  const Interrupt never;
  const test::Stopwatch watch;
  const Dialled dialled = dial("slow", 1, milliseconds(200), never);
  CHECK(dialled.error == "Connection timed out");
  CHECK(watch.wall() >= milliseconds(500));
}

}  // namespace dtrun::rendezvous::endpoint_test
