// A TCP relay on loopback for tests: connections to it are passed on to another port, until a test resets
// them or lets them fall silent, as a network would.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace dtrun::test {

class Relay {
 public:
  explicit Relay(int target_port);
  ~Relay();
  Relay(const Relay&) = delete;

  int port() const { return port_; }
  // Both ends of every connection get a TCP reset. New ones are passed on as before.
  void reset();
  // From now on nothing passes and no error is reported, as if the cable was cut; until thaw().
  void freeze();
  void thaw();
  int connections() const;  // accepted so far
  // All bytes of both directions so far, as they came.
  std::string passed() const;
  // Those of who connected.
  std::string sent() const;

 private:
  struct Pair {
    int from, to;
  };

  void run();
  bool pass_on(int from, int to, std::string* record = nullptr);
  void accept_one();
  void wake();
  void close_all();

  const int target_port_;
  int port_ = 0;
  int listener_ = -1;
  int wake_ = -1;          // eventfd
  std::list<Pair> pairs_;  // the thread's

  mutable std::mutex mutex_;  // guards the rest
  bool ending_ = false;
  bool resetting_ = false;
  bool frozen_ = false;
  int connections_ = 0;
  std::string passed_, sent_;
  std::thread thread_;
};

}  // namespace dtrun::test
