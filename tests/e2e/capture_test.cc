// The traffic between two machines, read as anybody on the network can: from a packet socket. With a key none
// of it tells the job's config, the key, the run or what its workers say to the store.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::capture_test {

using namespace dtrun::test;

namespace {

// All that passes a network namespace's interfaces, until the end.
class Capture {
 public:
  explicit Capture(pid_t inside) {
    std::thread([this, inside] {
      // A socket stays in the namespace in which it was made; the thread ends.
      const int space = open(("/proc/" + std::to_string(inside) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
      if (setns(space, CLONE_NEWNET) == 0) fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
      close(space);
    }).join();
    if (fd_ < 0) throw std::runtime_error("no packet socket");
    const int room = 64 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    const timeval look{0, 100000};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    thread_ = std::thread([this] { run(); });
  }
  ~Capture() {
    end();
    close(fd_);
  }
  // The packets, one after the other.
  const std::string& end() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    return seen_;
  }

 private:
  void run() {
    std::array<char, 1 << 16> packet{};
    for (;;) {
      const ssize_t size = recv(fd_, packet.data(), packet.size(), 0);
      if (size > 0) seen_.append(packet.data(), static_cast<std::size_t>(size));
      if (size <= 0 && ending_) return;
    }
  }

  int fd_ = -1;
  std::atomic<bool> ending_{false};
  std::string seen_;  // the thread's, until it has ended
  std::thread thread_;
};

// The text that a job of two nodes shows to the network; `options`: of both.
std::string shown_by_job(const std::vector<std::string>& options) {
  const Hosts hosts(2);
  Capture capture(std::stoi(hosts.on(0, {})[2]));
  const auto start = [&](int host) {
    std::vector<std::string> argv{"--rdzv_endpoint",  Hosts::address(0) + ":29400",
                                  "--rdzv_id",        "run-4f1d",
                                  "--nnodes",         "2",
                                  "--nproc_per_node", "1",
                                  "--lanes",          "1"};
    argv.insert(argv.end(), options.begin(), options.end());
    return std::make_unique<Process>(hosts.on(
        host, training(argv, hosts.directory() / "out", {"train.max_steps=5", "train.seed=424242"})));
  };
  const auto one = start(0), two = start(1);
  for (Process* const node : {one.get(), two.get()}) {
    const Ended ended = node->end();
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  }
  return capture.end();
}

TEST_CASE("who reads all packets of a job with a key reads nothing of its config, key, run or store") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Folder folder;
  const std::string file = folder / "key";
  REQUIRE(run({kDtrun, "key", file}).exit_code == 0);
  const std::string key = read_text(file).substr(0, 48);
  // The words that a reader would look for: of the config, the run and its keys in the store, the protocol.
  const std::vector<std::string> words{"424242", "fashion_mnist", "run-4f1d", "run-4f1d/1/",
                                       "dtrun.rendezvous.v1"};
  const std::string locked = shown_by_job({"--key_file", file});
  const std::string open = shown_by_job({"--insecure"});
  CHECK(locked.size() > 100000);  // gradients are there, as under torchrun
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(!contains(locked, word));
    CHECK(contains(open, word));  // so that the line above can fail
  }
  CHECK(!contains(locked, key));
  CHECK(!contains(locked, key.substr(5)));
}

}  // namespace

}  // namespace dtrun::capture_test
