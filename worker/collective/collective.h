// What the trainer needs of a collective library: messages between ranks that are started and awaited
// separately, and the few blocking operations of start-up. gloo/ carries them over TCP. What is exchanged in
// a step, and in which order it is summed, stands in gradient_exchange.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace dtrun::worker {

// A message to or from `peer`. Messages of one (sender, receiver, tag) arrive in the order they were started.
// The memory must stay as it is until the Pending that carries it was awaited.
struct OutMessage {
  int peer = 0;
  std::uint32_t tag = 0;
  std::span<const std::byte> bytes;
};
struct InMessage {
  int peer = 0;
  std::uint32_t tag = 0;
  std::span<std::byte> bytes;
};

// Messages under way. Destroying it without wait() gives them up, and their memory is free for other use:
// allowed only when the collective is broken or aborted. It may outlive the collective.
class Pending {
 public:
  virtual ~Pending() = default;
  // Until all are sent and received. Throws WorkerError, kExitWorkerPeerLost.
  virtual void wait() = 0;
};

// Every operation ends in bounded time: with its result, or with WorkerError(kExitWorkerPeerLost) naming the
// peer. After one failed, the collective is broken and every later call fails too.
//
// To give up one that is broken or outdated: abort(); then wait for the threads that use it, which it sets
// free, and destroy what refers to it (a GradientExchange); then destroy it. Its peers see its connections
// close. Descriptors and threads are gone with it, or with the last Pending if one outlives it.
class Collective {
 public:
  // May find messages under way, but no other thread in a call. Aborts.
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts sends and receives; does not block. Thread-safe. Empty messages are skipped on both sides.
  // Receives may be started long before the peer sends: then the bytes go straight to their place when they
  // come.
  virtual std::unique_ptr<Pending> start(std::span<const OutMessage> sends,
                                         std::span<const InMessage> receives) = 0;

  // In place, element-wise, by the library's own algorithm: the bits depend on the number of ranks.
  virtual void all_reduce_sum(std::span<float> values) = 0;

  // Every wait on this, also on its Pendings, now and later, and every later operation ends within
  // milliseconds with WorkerError(kExitWorkerPeerLost). When it returns, the connections are closed and no
  // message touches its memory any more. Any thread, more than once.
  virtual void abort() noexcept = 0;
  // Throws WorkerError(kExitWorkerPeerLost) once it was aborted: for long work between two operations. Any
  // thread.
  virtual void check() const = 0;

  // Starts giving every rank's part to all: sends part_of(rank()), which is filled in, to each peer, and
  // receives part_of(peer) from it. All ranks call it alike; does not block.
  std::unique_ptr<Pending> start_gather(std::uint32_t tag,
                                        const std::function<std::span<std::byte>(int rank)>& part_of);

  // The following block; one call at a time, all ranks in the same order.
  // `all` holds size() records of equal length; each rank has filled in its own (rank()-th).
  void all_gather(std::span<std::byte> all);
  void broadcast(int root, std::span<std::byte> bytes);
  void barrier();
};

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

// The key-value store through which ranks find each other.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Both throw WorkerError(kExitWorkerPeerLost): the store is lost, nobody set the key within `timeout`, or
  // `stop` was requested, which ends them within milliseconds.
  virtual void set(const std::string& key, const std::string& value, std::stop_token stop) = 0;
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout,
                          std::stop_token stop) = 0;
};

// How long a peer may be silent while somebody waits for it.
inline constexpr std::chrono::milliseconds kPeerPatience{60000};

struct CollectiveOptions {
  int rank = 0;
  int size = 1;
  std::string address;  // this host's, numeric or a name, on which the collective listens
  std::chrono::milliseconds connect_timeout{120000};  // until all ranks have found each other
  std::chrono::milliseconds timeout = kPeerPatience;  // of any one wait after that
  std::stop_token stop{};  // ends the meeting within milliseconds; a collective that was made is aborted
  std::string store_prefix = "gloo/";  // of its keys; in one store each collective needs its own
};

// No peers, no sockets. REQUIRES: size 1. `stop` aborts it.
std::unique_ptr<Collective> make_single_process_collective(std::stop_token stop = {});

// Connects every rank with every other through gloo; blocks until all are there. Throws
// WorkerError(kExitWorkerPeerLost), and leaves nothing behind.
std::unique_ptr<Collective> make_gloo_collective(const CollectiveOptions& options, KeyValueStore& store);

}  // namespace dtrun::worker
