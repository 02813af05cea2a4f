#include "worker/collective/gloo/mesh.h"

#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/tcp/pair.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>

namespace dtrun::worker {

namespace tcp = gloo::transport::tcp;

class MeshBuffer final : public tcp::UnboundBuffer {
 public:
  MeshBuffer(const std::shared_ptr<Mesh>& mesh, void* data, std::size_t size)
      : tcp::UnboundBuffer(mesh, data, size), mesh_(*mesh) {}

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    const Mesh::Wait wait(mesh_, *this);
    return tcp::UnboundBuffer::waitRecv(rank, timeout);
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    const Mesh::Wait wait(mesh_, *this);
    return tcp::UnboundBuffer::waitSend(rank, timeout);
  }
  void end_wait(const std::exception_ptr& reason) { signalException(reason); }

 private:
  Mesh& mesh_;  // the base class owns it
};

namespace {

// A connection that breaks without harm to others. gloo's event loop ends the process when one of its checks
// fails: on a connection that was reset just after it was made, or on bytes that gloo did not send. And a
// thread that waits for a message that is halfway through would wait until the timeout.
class MeshPair final : public tcp::Pair {
 public:
  using tcp::Pair::Pair;
  void handleEvents(int events) override {
    try {
      tcp::Pair::handleEvents(events);
    } catch (const std::exception& error) {
      // Only a thread that closes the pair holds the lock for long, and that thread waits for this one.
      const std::unique_lock lock(m_, std::try_to_lock);
      if (!lock || ex_ != nullptr) return;
      // Closing removes the descriptor from the event loop, so a connection that was just accepted must be
      // registered first.
      device_->registerDescriptor(fd_, EPOLLIN, this);
      signalException(error.what());
    }
  }

 private:
  // REQUIRES: the lock is held.
  void changeState(state next) noexcept override {
    if (next == CLOSED && ex_ != nullptr) {
      end_wait(rx_);
      for (const tcp::Op& op : tx_) end_wait(op);
    }
    tcp::Pair::changeState(next);
  }
  void end_wait(const tcp::Op& op) const {
    const gloo::NonOwningPtr<tcp::UnboundBuffer> buffer(op.ubuf);
    if (buffer) static_cast<MeshBuffer*>(buffer.operator->())->end_wait(ex_);
  }
};

// Closing a connection waits for a round of the event loop, which comes with the next event or after 10 ms.
// While this object lives, there is always an event.
class Hurry {
 public:
  explicit Hurry(tcp::Device& device) : always_readable_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (always_readable_ < 0) return;
    try {
      device.registerDescriptor(always_readable_, EPOLLIN, &nothing());
    } catch (const std::exception&) {  // only costs time
    }
  }
  // Closing removes it from the event loop.
  ~Hurry() {
    if (always_readable_ >= 0) close(always_readable_);
  }
  Hurry(const Hurry&) = delete;

 private:
  // Never destroyed: the loop may call it once more after the end.
  static tcp::Handler& nothing() {
    struct Nothing final : tcp::Handler {
      void handleEvents(int) override {}
    };
    static auto& handler = *new Nothing;
    return handler;
  }
  const int always_readable_;
};

// The event loop of one mesh, and its address.
class MeshDevice final : public tcp::Device {
 public:
  using tcp::Device::Device;
  void set_mesh(const std::shared_ptr<Mesh>& mesh) { mesh_ = mesh; }
  std::shared_ptr<gloo::transport::Context> createContext(int, int) override { return mesh_.lock(); }

 private:
  std::weak_ptr<Mesh> mesh_;  // the mesh owns this device
};

}  // namespace

void Mesh::abort() noexcept {
  {
    std::lock_guard lock(waits_mutex_);
    aborted_ = true;
    const auto reason = std::make_exception_ptr(Aborted());
    for (MeshBuffer* buffer : waiting_) buffer->end_wait(reason);
  }
  std::lock_guard lock(pairs_mutex_);
  const Hurry hurry(*device_);
  // Closes without a reset: gloo's event loop at the other end does not expect one while it connects.
  signalException(Aborted().what());
}

std::unique_ptr<gloo::transport::Pair>& Mesh::createPair(int rank) {
  std::lock_guard lock(pairs_mutex_);
  if (aborted_) throw Aborted();
  pairs_[rank] = std::make_unique<MeshPair>(this, device_.get(), rank, getTimeout());
  return pairs_[rank];
}

std::unique_ptr<gloo::transport::UnboundBuffer> Mesh::createUnboundBuffer(void* data, std::size_t size) {
  return std::make_unique<MeshBuffer>(std::static_pointer_cast<Mesh>(shared_from_this()), data, size);
}

Mesh::Wait::Wait(Mesh& mesh, MeshBuffer& buffer) : mesh_(mesh), buffer_(buffer) {
  std::lock_guard lock(mesh_.waits_mutex_);
  if (mesh_.aborted_) throw Aborted();
  mesh_.waiting_.push_back(&buffer_);
}

Mesh::Wait::~Wait() {
  std::lock_guard lock(mesh_.waits_mutex_);
  std::erase(mesh_.waiting_, &buffer_);
}

// gloo's event loop only tries to take a connection's lock, and asks epoll again while a sender holds it. A
// loop that wakes up on that sender's core and preempts the sender spins there for a whole time slice. A
// batch thread never preempts on wake-up, and it keeps its full share when all cores are busy. Threads
// inherit the policy of their creator.
std::shared_ptr<Mesh> make_mesh(const std::string& address, int rank, int size) {
  std::shared_ptr<MeshDevice> device;
  std::exception_ptr failure;
  std::thread([&] {
    const sched_param none{};
    sched_setscheduler(0, SCHED_BATCH, &none);  // a refusal only costs speed
    try {
      tcp::attr attributes;
      attributes.hostname = address;
      device = std::make_shared<MeshDevice>(tcp::CreateDeviceAttr(attributes));
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  auto mesh = std::make_shared<Mesh>(device, rank, size);
  device->set_mesh(mesh);
  return mesh;
}

}  // namespace dtrun::worker
