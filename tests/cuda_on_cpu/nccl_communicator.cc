#include "tests/cuda_on_cpu/nccl_communicator.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <thread>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/nccl_faults.h"
#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;  // guarded by mutex
};
LastError& last_nccl_error() {
  static LastError& error = *new LastError;
  return error;
}

}  // namespace

// The operation of a group: bytes between device memory and sockets, as far as it gets each time that it is
// asked.
class Transfer {
 public:
  Transfer(Communicator& communicator, Group group, std::uint64_t number)
      : communicator_(communicator), group_(std::move(group)), number_(number) {}

  // On the devices' thread. Done, too, once the communicator is aborted.
  Progress ask() {
    const std::lock_guard lock(communicator_.links_mutex_);
    if (communicator_.aborted_) {
      spoil();
      return Progress::kDone;
    }
    if (!begun_) begin();
    if (stuck_ || !is_ready()) return Progress::kNone;
    const DeviceMemoryOpen open;
    bool moved = false, left = false;
    for (Direction& direction : directions_) {
      moved |= move(direction);
      left |= !direction.messages.empty();
    }
    if (!left) return Progress::kDone;
    return moved ? Progress::kSome : Progress::kNone;
  }

 private:
  // A message's size goes in front of it, and a receiver compares.
  struct Moving {
    Message message;
    std::uint64_t size = 0;  // that is sent, or was received
    std::size_t done = 0;    // bytes of size and message
  };
  struct Direction {  // to or from one rank
    int peer;
    bool out;
    std::deque<Moving> messages{};
  };

  void begin() {
    begun_ = true;
    for (const bool out : {true, false}) {
      for (const Message& message : out ? group_.sends : group_.receives) {
        auto to = std::ranges::find_if(
            directions_, [&](const Direction& d) { return d.peer == message.peer && d.out == out; });
        if (to == directions_.end()) to = directions_.insert(to, {message.peer, out});
        to->messages.push_back({message, out ? message.bytes : 0});
      }
    }
    stuck_ = has_fault();
  }

  bool has_fault() {
    const auto planned = [&](const char* kind) { return nccl_fault(kind, communicator_.rank, number_); };
    if (planned("dies")) die();
    if (const auto error = planned("breaks-device")) {
      break_device(static_cast<cudaError_t>(*error));
      return true;
    }
    if (const auto error = planned("async-error")) {
      communicator_.fail(static_cast<ncclResult_t>(*error), "a planned fault");
      return true;
    }
    return planned("silent").has_value();
  }

  void die() {
    const DeviceMemoryOpen open;
    if (!group_.sends.empty()) {
      const Message& first = group_.sends.front();
      const std::uint64_t size = first.bytes;
      send(data_to(first.peer), &size, sizeof size, MSG_NOSIGNAL);
      send(data_to(first.peer), first.data, first.bytes / 2, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    kill(getpid(), SIGKILL);
  }

  int data_to(int peer) const { return communicator_.links_[static_cast<std::size_t>(peer)].data.fd(); }

  // Whether something can be moved. Looks without opening device memory, which takes long.
  bool is_ready() const {
    std::vector<pollfd> ends;
    for (const Direction& one : directions_) {
      if (!one.messages.empty() && !gone_.contains(one.peer))
        ends.push_back({data_to(one.peer), static_cast<short>(one.out ? POLLOUT : POLLIN), 0});
    }
    return poll(ends.data(), ends.size(), 0) > 0;
  }

  // Returns whether it got anywhere.
  bool move(Direction& direction) {
    bool moved = false;
    while (!direction.messages.empty() && !gone_.contains(direction.peer) && !stuck_) {
      Moving& first = direction.messages.front();
      constexpr std::size_t kSize = sizeof first.size;
      const std::size_t end = first.done < kSize ? kSize : kSize + first.message.bytes;
      if (first.done < end) {
        char* const at = first.done < kSize ? reinterpret_cast<char*>(&first.size) + first.done
                                            : first.message.data + (first.done - kSize);
        const std::size_t left = end - first.done;
        const ssize_t n = direction.out ? send(data_to(direction.peer), at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                        : recv(data_to(direction.peer), at, left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) {
          lose(direction.peer);
          break;
        }
        first.done += static_cast<std::size_t>(n);
        moved = true;
        if (first.done == kSize) check_size(first);
      }
      if (first.done == kSize + first.message.bytes) direction.messages.pop_front();
    }
    return moved;
  }

  void check_size(const Moving& one) {
    if (one.size == one.message.bytes) return;
    stuck_ = true;
    communicator_.fail(ncclInvalidUsage, "rank " + std::to_string(communicator_.rank) + " receives " +
                                             std::to_string(one.message.bytes) + " bytes from rank " +
                                             std::to_string(one.message.peer) + " in its group " +
                                             std::to_string(number_) + ", which sends " +
                                             std::to_string(one.size));
  }

  // NCCL learns of a peer's death where it has a socket to it, not where it writes into its memory. Here
  // ranks with odd numbers learn of it; to the others it is silence.
  void lose(int peer) {
    gone_.insert(peer);
    if (communicator_.rank % 2 == 1)
      communicator_.fail(ncclRemoteError, "the connection to rank " + std::to_string(peer) + " is closed");
  }

  // Fills what was to be received with NaN, so that nobody takes it for numbers.
  void spoil() {
    const DeviceMemoryOpen open;
    for (const Message& result : group_.receives) std::memset(result.data, 0xff, result.bytes);
  }

  Communicator& communicator_;
  const Group group_;
  const std::uint64_t number_;
  bool begun_ = false, stuck_ = false;
  std::vector<Direction> directions_;
  std::set<int> gone_;  // ranks
};

ncclResult_t nccl_error(ncclResult_t error, const std::string& why) {
  const std::lock_guard lock(last_nccl_error().mutex);
  last_nccl_error().text = why;
  return error;
}

std::string nccl_last_error() {
  const std::lock_guard lock(last_nccl_error().mutex);
  return last_nccl_error().text;
}

void Communicator::begin_init(const ncclUniqueId& id, const std::string& gpu) {
  begin([this, id, gpu] { return init(id, gpu); });
}

void Communicator::begin_launch(Group group) {
  begin([this, group = std::move(group)] { return launch(group); });
}

void Communicator::begin(std::function<ncclResult_t()> job) {
  {
    const std::lock_guard lock(mutex_);
    state_ = ncclInProgress;
    job_runs_ = true;
    polled_ = false;
  }
  std::thread([this, job = std::move(job)] {
    const ncclResult_t result = job();
    const std::lock_guard lock(mutex_);
    if (state_ == ncclInProgress) state_ = result;
    job_runs_ = false;
    changed_.notify_all();
  }).detach();
}

ncclResult_t Communicator::state(bool polls) {
  const std::lock_guard lock(mutex_);
  polled_ |= polls;
  changed_.notify_all();
  return state_;
}

ncclResult_t Communicator::fail(ncclResult_t error, const std::string& why) {
  nccl_error(error, why);
  const std::lock_guard lock(mutex_);
  if (state_ == ncclSuccess || state_ == ncclInProgress) state_ = error;
  return error;
}

void Communicator::abort() {
  Point last;
  {
    std::unique_lock lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
    if (nccl_fault("abort-hangs", rank)) changed_.wait(lock, [] { return false; });
    changed_.wait(lock, [&] { return !job_runs_; });
    last = last_;
  }
  if (last.stream) wait_for(last);
  const std::lock_guard lock(links_mutex_);
  links_.clear();
  ended_ = true;
}

ncclResult_t Communicator::init(const ncclUniqueId& id, const std::string& gpu) {
  if (const auto error = nccl_fault("init-fails", rank))
    return nccl_error(static_cast<ncclResult_t>(*error), "a planned fault");
  Met met = meet(id, rank, size, gpu, [this] { return aborted_.load(); });
  if (met.result != ncclSuccess) return nccl_error(met.result, met.why);
  {
    const std::lock_guard lock(links_mutex_);
    links_ = std::move(met.links);
  }
  return nccl_fault("init-stuck", rank) ? wait_until_aborted() : ncclSuccess;
}

ncclResult_t Communicator::launch(Group group) {
  const std::uint64_t number = ++groups_;
  count_nccl_group();
  if (nccl_fault("group-stuck", rank, number)) return wait_until_aborted();
  {
    // A caller that assumes the launch to be done records its events in front of it.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, settings.launch_latest, [&] { return polled_ || aborted_; });
  }
  if (const ncclResult_t result = connect(group); result != ncclSuccess) return result;
  set_current_device(device);
  const cudaStream_t stream = group.stream;
  const auto transfer = std::make_shared<Transfer>(*this, std::move(group), number);
  Operation operation;
  operation.ask = [transfer] { return transfer->ask(); };
  operation.launch = true;
  Point point;
  if (last_.stream) operation.after = {last_};
  const cudaError_t error = enqueue(stream, std::move(operation), false, &point);
  if (error != cudaSuccess) return nccl_error(ncclUnhandledCudaError, cudaGetErrorName(error));
  const std::lock_guard lock(mutex_);
  last_ = point;
  return ncclSuccess;
}

// The first time that two ranks have messages for each other, both have to come.
ncclResult_t Communicator::connect(const Group& group) {
  const auto stop = [this] { return aborted_.load(); };
  std::set<std::size_t> fresh;
  for (const auto* const messages : {&group.sends, &group.receives}) {
    for (const Message& message : *messages) {
      if (!connected_[static_cast<std::size_t>(message.peer)])
        fresh.insert(static_cast<std::size_t>(message.peer));
    }
  }
  bool all = true;
  char byte = 0;
  for (const std::size_t peer : fresh) all &= send_all(links_[peer].control, &byte, 1, stop);
  for (const std::size_t peer : fresh) {
    all = all && receive_all(links_[peer].control, &byte, 1, stop);
    connected_[peer] = true;
  }
  if (aborted_) return nccl_error(ncclInternalError, "aborted");
  return all ? ncclSuccess : nccl_error(ncclRemoteError, "a rank is gone that is to be connected to");
}

ncclResult_t Communicator::wait_until_aborted() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return aborted_.load(); });
  return nccl_error(ncclInternalError, "aborted");
}

}  // namespace cuda_on_cpu
