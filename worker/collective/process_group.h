// The trainer's interface to a communication library: messages between ranks that are started and awaited
// separately, and the few blocking operations of start-up. gloo/ carries them over TCP. gradient_exchange.h
// decides what a step exchanges, and in which order it is summed.
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
// The memory must not change until the message's Work was awaited.
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

// Messages under way. Destruction without wait() gives the messages up and frees their memory for other use:
// allowed only when the process group is broken or aborted. A Work may outlive the process group.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until all messages are sent and received. Throws WorkerError, kExitWorkerPeerLost.
  virtual void wait() = 0;
  // The same; those of rank `first` are waited for before those of higher ranks, and then those of the
  // others. `waited` is told of each receive.
  using Waited = std::function<void(int peer, std::chrono::steady_clock::time_point from,
                                    std::chrono::steady_clock::time_point to)>;
  virtual void wait_from(int first, const Waited& waited) {
    static_cast<void>(first), static_cast<void>(waited);
    wait();
  }
};

// Bytes of the messages that are complete.
struct Traffic {
  std::int64_t sent = 0, received = 0;
};

// Every operation ends in bounded time: with its result, or with WorkerError(kExitWorkerPeerLost) naming the
// peer. After a failure the process group is broken and every later call fails too.
//
// To give up a broken or outdated collective: abort(), which ends all waits in it; wait for the threads that
// use it; destroy objects that refer to it (a GradientExchange); destroy the process group. Its peers see its
// connections close. Its descriptors and threads end with it, or with the last Work that outlives it.
class ProcessGroup {
 public:
  // Aborts messages under way. REQUIRES: no other thread is in a call.
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts sends and receives; does not block. Thread-safe. Empty messages are skipped on both sides.
  // Receives may be started long before the peer sends: the bytes then arrive directly in their place.
  virtual std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                                      std::span<const InMessage> receives) = 0;

  // Ends every present and later wait, also on Works, and every later operation within milliseconds with
  // WorkerError(kExitWorkerPeerLost). When abort() returns, the connections are closed and no message touches
  // its memory any more. Any thread, more than once.
  virtual void abort() noexcept = 0;
  // Throws WorkerError(kExitWorkerPeerLost) once the process group was aborted: for long work between two
  // operations. Any thread.
  virtual void check() const = 0;
  // The rank, for people, of this group's rank in the job: another one in a sub-group.
  virtual int global_rank(int rank) const { return rank; }
  // Any thread.
  virtual Traffic traffic() const { return {}; }

  // Starts an all-gather: sends part_of(rank()), which is filled in, to each peer, and receives part_of(peer)
  // from each. All ranks call it with parts of the same sizes; does not block.
  std::unique_ptr<Work> start_gather(std::uint32_t tag,
                                     const std::function<std::span<std::byte>(int rank)>& part_of);

  // The functions below block; one call at a time, in the same order on all ranks. `all` holds size() records
  // of equal length; each rank has filled in its own (rank()-th).
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
  // Both throw WorkerError(kExitWorkerPeerLost) if the store is lost, if the key was not set within
  // `timeout`, or, within milliseconds, if `stop` was requested.
  virtual void set(const std::string& key, const std::string& value, std::stop_token stop) = 0;
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout,
                          std::stop_token stop) = 0;
};

// The time that a peer may be silent while another rank waits for it.
inline constexpr std::chrono::milliseconds kPeerPatience{60000};

struct ProcessGroupOptions {
  int rank = 0;
  int size = 1;
  std::string address;  // of this host, numeric or a name, on which the process group listens
  std::chrono::milliseconds connect_timeout{120000};  // until all ranks have found each other
  std::chrono::milliseconds timeout = kPeerPatience;  // of any single wait after that
  std::stop_token stop{};  // ends the meeting within milliseconds, or aborts the finished collective
  std::string store_prefix = "gloo/";  // of its keys; must be unique among process groups in a store
};

// A process group of one rank, without sockets. `stop` aborts it.
std::unique_ptr<ProcessGroup> make_single_process_group(std::stop_token stop = {});

// Ranks begin .. end - 1 of `whole`, as ranks from 0 on; its messages, tags and failures are those of
// `whole`, which must outlive this. Two groups of the same ranks must use the same tags by turns.
// REQUIRES: this rank is one of them.
std::unique_ptr<ProcessGroup> make_sub_group(ProcessGroup& whole, int begin, int end);

// Connects every rank with every other through gloo; blocks until all are connected. Throws
// WorkerError(kExitWorkerPeerLost), and leaves nothing behind.
std::unique_ptr<ProcessGroup> make_gloo_process_group(const ProcessGroupOptions& options,
                                                      KeyValueStore& store);

}  // namespace dtrun::worker
