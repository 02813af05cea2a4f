// ProcessGroup over gloo's TCP transport: one pair of sockets' ends per peer, unbound buffers, one event-loop
// thread of gloo's own that moves the bytes. gloo's exceptions become WorkerError here and nowhere else.
#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <stop_token>
#include <system_error>
#include <utility>
#include <vector>

#include "worker/base/error.h"
#include "worker/base/operation_log.h"
#include "worker/base/pulse.h"
#include "worker/collective/gloo/gloo_store.h"
#include "worker/collective/gloo/mesh.h"
#include "worker/collective/process_group.h"
#include "worker/collective/tags.h"

namespace dtrun::worker {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Cuts off the place in gloo's source that its messages begin with.
std::string reason(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

// The failure of `what`; after abort() the abort is the reason of every failure.
WorkerError failure(const Mesh& mesh, const std::string& what, const std::exception& error) {
  return {kExitWorkerPeerLost, mesh.aborted() ? Aborted().what() : what + ": " + reason(error)};
}

void check(const Mesh& mesh) {
  if (mesh.aborted()) throw WorkerError(kExitWorkerPeerLost, Aborted().what());
}

// Buffers whose operation is complete, kept for a while. gloo's thread still holds a buffer for some instants
// after it has announced completion, and ~UnboundBuffer yields the processor in a loop until the thread
// releases it: with all cores busy that costs more than the message.
class RetiredBuffers {
 public:
  void add(std::unique_ptr<gloo::transport::UnboundBuffer> buffer) {
    std::lock_guard lock(mutex_);
    std::swap(buffers_[next_], buffer);
    next_ = (next_ + 1) % buffers_.size();
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers_{256};
  std::size_t next_ = 0;
};

struct Counted {
  std::atomic<std::int64_t> sent = 0, received = 0;  // bytes
};

class GlooPending final : public Work {
 public:
  GlooPending(milliseconds timeout, std::shared_ptr<Mesh> mesh, std::shared_ptr<RetiredBuffers> retired,
              std::shared_ptr<Counted> counted)
      : timeout_(timeout),
        mesh_(std::move(mesh)),
        retired_(std::move(retired)),
        counted_(std::move(counted)) {}

  void send(const OutMessage& message) {
    // gloo takes a mutable pointer for either direction and does not write to the memory that it sends.
    auto* data = const_cast<std::byte*>(message.bytes.data());
    start(message.peer, data, message.bytes.size(), true, message.tag);
  }
  void receive(const InMessage& message) {
    start(message.peer, message.bytes.data(), message.bytes.size(), false, message.tag);
  }

  void wait() override {
    wait_from(0, [](int, Clock::time_point, Clock::time_point) {});
  }

  void wait_from(int first, const Waited& waited) override {
    check(*mesh_);
    const Pulse::WaitsForPeers alive;
    std::stable_partition(operations_.begin(), operations_.end(),
                          [first](const PendingOperation& each) { return each.peer >= first; });
    for (PendingOperation& operation : operations_) {
      const Clock::time_point from = Clock::now();
      try {
        const OperationLog::Wait written(operation_of(operation.tag, operation.peer, operation.is_send));
        if (operation.is_send) {
          operation.buffer->waitSend(nullptr, timeout_);
        } else {
          operation.buffer->waitRecv(nullptr, timeout_);
        }
      } catch (const std::exception& error) {
        throw lost(operation.peer, error);
      }
      (operation.is_send ? counted_->sent : counted_->received)
          .fetch_add(static_cast<std::int64_t>(operation.buffer->size), std::memory_order_relaxed);
      if (!operation.is_send) waited(operation.peer, from, Clock::now());
    }
    for (PendingOperation& operation : operations_) retired_->add(std::move(operation.buffer));
    operations_.clear();
  }

 private:
  struct PendingOperation {
    int peer;
    bool is_send;
    std::uint32_t tag;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  WorkerError lost(int peer, const std::exception& error) const {
    return failure(*mesh_, "lost rank " + std::to_string(peer), error);
  }

  void start(int peer, void* data, std::size_t size, bool is_send, std::uint32_t tag) {
    if (size == 0) return;
    try {
      operations_.push_back({peer, is_send, tag, mesh_->createUnboundBuffer(data, size)});
      auto& buffer = *operations_.back().buffer;
      if (is_send) {
        buffer.send(peer, tag, 0, size);
      } else {
        buffer.recv(peer, tag, 0, size);
      }
    } catch (const std::exception& error) {
      throw lost(peer, error);
    }
  }

  const milliseconds timeout_;
  const std::shared_ptr<Mesh> mesh_;
  const std::shared_ptr<RetiredBuffers> retired_;
  const std::shared_ptr<Counted> counted_;
  std::vector<PendingOperation> operations_;
};

class GlooProcessGroup final : public ProcessGroup {
 public:
  // Throws WorkerError or one of gloo's exceptions.
  GlooProcessGroup(const ProcessGroupOptions& options, KeyValueStore& store)
      : timeout_(options.timeout),
        mesh_(make_mesh(options.address, options.rank, options.size)),
        context_(std::make_shared<gloo::rendezvous::Context>(options.rank, options.size)),
        stop_(options.stop, Abort{*mesh_}) {
    try {
      // gloo waits five times this long for each connection.
      context_->setTimeout(options.connect_timeout / 5);
      GlooStore rendezvous(store, options);
      const OperationLog::Wait written({.kind = Operation::Kind::kConnect});
      auto device = mesh_->device();
      context_->connectFullMesh(rendezvous, device);
      worker::check(*mesh_);
      context_->setTimeout(timeout_);
    } catch (...) {
      worker::check(*mesh_);
      mesh_->abort();
      throw;
    }
  }
  ~GlooProcessGroup() override { mesh_->abort(); }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  std::unique_ptr<Work> start(std::span<const OutMessage> sends,
                              std::span<const InMessage> receives) override {
    check();
    auto pending = std::make_unique<GlooPending>(timeout_, mesh_, retired_, counted_);
    for (const InMessage& message : receives) pending->receive(message);
    for (const OutMessage& message : sends) pending->send(message);
    return pending;
  }

  void abort() noexcept override { mesh_->abort(); }
  void check() const override { worker::check(*mesh_); }
  Traffic traffic() const override { return {.sent = counted_->sent, .received = counted_->received}; }

 private:
  struct Abort {
    Mesh& mesh;
    void operator()() const noexcept { mesh.abort(); }
  };

  const milliseconds timeout_;
  const std::shared_ptr<Mesh> mesh_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  const std::shared_ptr<RetiredBuffers> retired_ = std::make_shared<RetiredBuffers>();
  const std::shared_ptr<Counted> counted_ = std::make_shared<Counted>();
  // Last, so that no abort comes after any other member is destroyed.
  const std::stop_callback<Abort> stop_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_gloo_process_group(const ProcessGroupOptions& options,
                                                      KeyValueStore& store) {
  try {
    return std::make_unique<GlooProcessGroup>(options, store);
  } catch (const WorkerError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::system_error&) {  // no thread: gloo's own failures are others
    throw;
  } catch (const std::exception& error) {
    throw WorkerError(kExitWorkerPeerLost, "rank " + std::to_string(options.rank) + " at " + options.address +
                                               " could not connect to its peers: " + reason(error));
  }
}

}  // namespace dtrun::worker
