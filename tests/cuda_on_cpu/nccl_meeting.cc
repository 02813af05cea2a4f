#include "tests/cuda_on_cpu/nccl_meeting.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

namespace cuda_on_cpu {
namespace {

using Stop = std::function<bool()>;

constexpr int kPollMs = 2;
// NCCL's NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC: the nth try comes n times as late.
constexpr int kTries = 34;
constexpr std::chrono::milliseconds kTryAgain{100};

// The content of an id.
struct Maker {
  std::uint64_t nonce;
  char address[sizeof(ncclUniqueId) - sizeof(std::uint64_t)];  // a leading @: a name without a file
};
static_assert(sizeof(Maker) == sizeof(ncclUniqueId));

// The first message of a rank on each connection.
struct Hello {
  int rank, size, ids;
  int control;  // whether it is that connection
  char gpu[80];
};

Maker maker_of(const ncclUniqueId& id) {
  Maker maker;
  std::memcpy(&maker, &id, sizeof maker);
  maker.address[sizeof maker.address - 1] = 0;
  return maker;
}

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const std::string& text) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (text.size() >= sizeof address.name.sun_path) {
    std::fprintf(stderr, "cuda_on_cpu: the path %s is too long for a socket\n", text.c_str());
    std::abort();
  }
  std::memcpy(address.name.sun_path, text.data(), text.size());
  if (text[0] == '@') address.name.sun_path[0] = 0;
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return address;
}

Socket listen_at(const std::string& text, int backlog) {
  Socket listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(text);
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0 ||
      listen(listener.fd(), backlog) != 0) {
    return Socket();
  }
  return listener;
}

void remove_file(const std::string& address) {
  if (address[0] != '@') unlink(address.c_str());
}

Socket connect_to(const std::string& text) {
  Socket end(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(text);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address.name);
  return connect(end.fd(), name, address.length) == 0 ? std::move(end) : Socket();
}

// Whether something happened before `stop` said so.
bool wait_for_event(int fd, short events, const Stop& stop) {
  pollfd one{fd, events, 0};
  while (!stop || !stop()) {
    if (poll(&one, 1, stop ? kPollMs : -1) > 0) return true;
  }
  return false;
}

Socket accept_at(const Socket& listener, const Stop& stop) {
  while (wait_for_event(listener.fd(), POLLIN, stop)) {
    Socket end(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (end.fd() >= 0) return end;
  }
  return Socket();
}

bool sleep_unless(const Stop& stop, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (stop()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return !stop();
}

// The id's maker that a rank connects to: neighbouring ranks to one, as evenly as may be.
int maker_for(int rank, int size, int ids) {
  const int each = size / ids, more = size % ids, of_larger = more * (each + 1);
  return rank < of_larger ? rank / (each + 1) : more + (rank - of_larger) / each;
}

int expected_at(int maker, int size, int ids) { return size / ids + (maker < size % ids ? 1 : 0); }

// Waits for its ranks, then lets them go. One that does not fit leaves all of them waiting, as the real one's
// does.
void receive_ranks(Socket listener, Maker maker) {
  const Stop never;
  std::vector<Socket> ranks;
  std::set<int> seen;
  Hello first{};
  for (std::size_t expected = 1; ranks.size() < expected;) {
    Socket rank = accept_at(listener, never);
    Hello hello{};
    if (!receive_all(rank.fd(), &hello, sizeof hello, never)) continue;
    if (ranks.empty()) first = hello;
    const bool fits = hello.size == first.size && hello.ids == first.ids;
    if (!fits || !seen.insert(hello.rank).second) {
      std::fprintf(stderr, "cuda_on_cpu: NCCL: rank %d of %d came to an id %s\n", hello.rank, hello.size,
                   fits ? "for which that rank had come already"
                        : ("of " + std::to_string(first.size) + " ranks").c_str());
      static std::vector<Socket>& left_waiting = *new std::vector<Socket>;
      for (Socket& one : ranks) left_waiting.push_back(std::move(one));
      left_waiting.push_back(std::move(rank));
      break;
    }
    expected = static_cast<std::size_t>(
        expected_at(maker_for(hello.rank, hello.size, hello.ids), hello.size, hello.ids));
    ranks.push_back(std::move(rank));
    if (ranks.size() == expected) {
      for (const Socket& one : ranks) send_all(one.fd(), "", 1, never);
    }
  }
  remove_file(maker.address);
}

// Goes to the id's maker and waits until it lets all go. "", or why not.
std::string come_to(const Maker& maker, const Hello& hello, const Stop& stop) {
  for (int i = 1; i <= kTries; ++i) {
    const Socket end = connect_to(maker.address);
    if (end.fd() >= 0) {
      char go = 0;
      if (send_all(end.fd(), &hello, sizeof hello, stop) && receive_all(end.fd(), &go, 1, stop)) return "";
      // The real one does not see that the maker has gone.
      while (!stop()) std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
    }
    if (!sleep_unless(stop, i * kTryAgain)) return "aborted";
  }
  return "nobody answers at the address of the unique id";
}

std::uint64_t key_of(const std::vector<ncclUniqueId>& ids) {
  std::uint64_t key = 0;
  for (const ncclUniqueId& id : ids) key = key * 0x9e3779b97f4a7c15 + maker_of(id).nonce;
  return key;
}

Hello hello_of(const Newcomer& newcomer) {
  Hello hello{};
  hello.rank = newcomer.rank;
  hello.size = newcomer.size;
  hello.ids = static_cast<int>(newcomer.ids.size());
  std::snprintf(hello.gpu, sizeof hello.gpu, "%s", newcomer.gpu.c_str());
  return hello;
}

// Both connections to each other rank: to lower ones it goes, higher ones come.
bool link_up(const Newcomer& newcomer, const Socket& listener, const std::string& where, Hello hello,
             const Stop& stop, std::vector<Link>& links, std::vector<std::string>& gpus) {
  for (int peer = 0; peer < newcomer.rank; ++peer) {
    for (hello.control = 0; hello.control < 2; ++hello.control) {
      Socket end;
      while ((end = connect_to(where + std::to_string(peer))).fd() < 0) {
        if (!sleep_unless(stop, std::chrono::milliseconds(1))) return false;
      }
      if (!send_all(end.fd(), &hello, sizeof hello, stop)) return false;
      (hello.control != 0 ? links[peer].control : links[peer].data) = std::move(end);
    }
  }
  for (int i = 0; i < 2 * (newcomer.size - 1 - newcomer.rank); ++i) {
    Socket end = accept_at(listener, stop);
    Hello theirs{};
    if (!receive_all(end.fd(), &theirs, sizeof theirs, stop)) return false;
    if (theirs.control == 0 && !send_all(end.fd(), &hello, sizeof hello, stop)) return false;
    gpus[theirs.rank] = theirs.gpu;
    (theirs.control != 0 ? links[theirs.rank].control : links[theirs.rank].data) = std::move(end);
  }
  for (int peer = 0; peer < newcomer.rank; ++peer) {
    Hello theirs{};
    if (!receive_all(links[peer].data.fd(), &theirs, sizeof theirs, stop)) return false;
    gpus[peer] = theirs.gpu;
  }
  return true;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool receive_all(int fd, void* data, std::size_t bytes, const Stop& stop) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = recv(fd, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for_event(fd, POLLIN, stop)) {
      return false;
    }
  }
  return true;
}

bool send_all(int fd, const void* data, std::size_t bytes, const Stop& stop) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n =
        send(fd, static_cast<const char*>(data) + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if ((errno != EAGAIN && errno != EINTR) || !wait_for_event(fd, POLLOUT, stop)) {
      return false;
    }
  }
  return true;
}

ncclResult_t make_unique_id(ncclUniqueId* id) {
  Maker maker{};
  if (getrandom(&maker.nonce, sizeof maker.nonce, 0) != sizeof maker.nonce) return ncclSystemError;
  const char* const folder = std::getenv("DTRUN_TEST_NCCL_FOLDER");
  const std::string begin = folder ? std::string(folder) + "/" : "@dtrun-nccl-";
  std::snprintf(maker.address, sizeof maker.address, "%s%016llx", begin.c_str(),
                static_cast<unsigned long long>(maker.nonce));
  Socket listener = listen_at(maker.address, SOMAXCONN);
  if (listener.fd() < 0) return ncclSystemError;
  std::thread(receive_ranks, std::move(listener), maker).detach();
  std::memcpy(id, &maker, sizeof maker);
  return ncclSuccess;
}

Met meet(const Newcomer& newcomer, const Stop& stop) {
  const auto size = static_cast<std::size_t>(newcomer.size);
  Met met;
  met.result = ncclInternalError;
  met.why = "aborted";
  char key[24];
  std::snprintf(key, sizeof key, "-%08x-", static_cast<unsigned>(key_of(newcomer.ids) >> 32));
  const std::string where = maker_of(newcomer.ids[0]).address + std::string(key);
  const std::string mine = where + std::to_string(newcomer.rank);
  const Socket listener = listen_at(mine, 2 * newcomer.size);
  if (listener.fd() < 0) {
    met.why = "rank " + std::to_string(newcomer.rank) + " is there already";
    return met;
  }
  const Maker maker =
      maker_of(newcomer.ids[maker_for(newcomer.rank, newcomer.size, static_cast<int>(newcomer.ids.size()))]);
  const Hello hello = hello_of(newcomer);
  std::vector<Link> links(size);
  std::vector<std::string> gpus(size);
  const std::string why = come_to(maker, hello, stop);
  if (!why.empty()) {
    if (!stop()) met.result = ncclRemoteError;
    met.why = why;
  } else if (link_up(newcomer, listener, where, hello, stop, links, gpus)) {
    met.result = ncclSuccess;
    met.links = std::move(links);
    for (int peer = 0; peer < newcomer.size; ++peer) {
      if (peer == newcomer.rank || gpus[peer] != newcomer.gpu) continue;
      met.result = ncclInvalidUsage;
      met.why = "Duplicate GPU detected : rank " + std::to_string(newcomer.rank) + " and rank " +
                std::to_string(peer) + " both on " + newcomer.gpu;
    }
  } else if (!stop()) {
    met.result = ncclRemoteError;
    met.why = "a rank was there and has gone";
  }
  remove_file(mine);
  return met;
}

}  // namespace cuda_on_cpu
