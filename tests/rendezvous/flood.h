// Unauthenticated peers for tests and measurements: they come to a coordinator or a store with a key in great
// numbers, with bytes at random, hellos that are cut off, plain HTTP/2 with a Join, TLS with another key and
// with none, what a member said replayed, and connections that stay and say little.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/identity/job_key.h"

namespace dtrun::test {

// The members' messages, as they went over the network.
struct Recordings {
  std::string plain;   // a Join without a key
  std::string locked;  // a call with the job's
};
// The second one at the coordinator or store at 127.0.0.1:port. A message without an answer is empty.
Recordings record(int port, const rendezvous::JobKey& key);

// Unauthenticated peers from many threads, which take only idle time.
class Flood {
 public:
  static constexpr int kKinds = 8;
  static constexpr std::array<const char*, kKinds> kNames{
      "random bytes", "cut hello", "plain Join", "other key", "no key", "replayed", "idle", "a byte a time"};

  // `number`: the number of peers, the same for all kinds. The process must ignore SIGPIPE.
  Flood(int port, long number, Recordings recordings);
  ~Flood();
  void stop() { left_ = 0; }
  void wait();
  bool over() const { return left_ <= 0; }
  long answered() const { return answered_; }  // clients that got data which is not TLS' own
  long come(int kind) const { return come_[static_cast<std::size_t>(kind)]; }
  long come() const;

 private:
  struct Client;  // of TLS

  void run(unsigned seed);
  void speak_tls(int fd, const Client& client);
  void listen(int fd);

  const int port_;
  std::atomic<long> left_, answered_{0};
  std::array<std::atomic<long>, kKinds> come_{};
  const Recordings recordings_;
  const std::unique_ptr<const Client> other_, none_;
  std::vector<std::thread> threads_;
};

}  // namespace dtrun::test
