// gloo's TCP transport between all ranks, made abortable. Closing its connections is not enough: gloo closes
// them one after another, with up to 10 ms each, and does not wake a thread that waits for a message that is
// halfway through.
#pragma once

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace dtrun::worker {

class MeshBuffer;

// Thrown by every operation once a mesh is aborted.
struct Aborted : std::runtime_error {
  Aborted() : std::runtime_error("the process group was aborted") {}
};

class Mesh final : public gloo::transport::tcp::Context {
 public:
  using gloo::transport::tcp::Context::Context;

  // Ends all waits at once, then closes all connections. When it returns, gloo no longer touches the memory
  // of any message. Any thread but gloo's, more than once.
  void abort() noexcept;
  bool aborted() const { return aborted_; }

  // The device gives gloo this context when gloo connects the ranks: the context exists before, so that
  // meeting the peers can be aborted.
  std::shared_ptr<gloo::transport::Device> device() const { return device_; }

  // Called by gloo.
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t size) override;

  // Exists during a wait on a buffer.
  class Wait {
   public:
    Wait(Mesh& mesh, MeshBuffer& buffer);  // throws Aborted
    ~Wait();
    Wait(const Wait&) = delete;

   private:
    Mesh& mesh_;
    MeshBuffer& buffer_;
  };

 private:
  std::mutex waits_mutex_;            // guards waiting_, and writes of aborted_
  std::vector<MeshBuffer*> waiting_;  // one per thread that waits
  std::atomic<bool> aborted_{false};
  std::mutex pairs_mutex_;  // guards pairs_ while they are created
};

// A mesh at this host's numeric address or name, without connections yet. Throws gloo's exceptions.
std::shared_ptr<Mesh> make_mesh(const std::string& address, int rank, int size);

}  // namespace dtrun::worker
