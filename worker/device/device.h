// A device runs a network. A lane is one executor on it: a thread (CPU) or a stream (CUDA) with its own
// activation arena, running one microbatch at a time. What a lane computes for a microbatch depends on the
// parameters, the samples and the device alone; never on other lanes, the rank or the world size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "worker/model/network.h"

namespace dtrun::worker {

// `capacity` rows are laid out; the first `samples` are real. The rest are zero and add nothing.
struct Microbatch {
  int samples = 0;                       // 1..capacity
  const float* x = nullptr;              // [capacity, channels, height, width], host memory
  const std::int32_t* labels = nullptr;  // [capacity]
};

// Sums over the microbatch's real samples.
struct MicrobatchStats {
  float loss = 0;     // negative log-likelihood
  float correct = 0;  // samples whose largest output is the label
};

class Lane {
 public:
  virtual ~Lane() = default;

  // Takes over new parameter values (flat, host memory, Network::size floats). Must be called before the
  // first microbatch and after each optimizer step; may reorder weights into the device's own layout.
  virtual void load_parameters(std::span<const float> flat) = 0;

  // Forward and backward. Overwrites `gradient` (Network::size floats, host memory) with the gradient of the
  // SUM of the samples' losses, and calls ready(bucket) from this thread as soon as a bucket of it is final,
  // in bucket order.
  virtual MicrobatchStats train(const Microbatch& microbatch, std::span<float> gradient,
                                const std::function<void(int bucket)>& ready) = 0;

  virtual MicrobatchStats evaluate(const Microbatch& microbatch) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // Call on the thread that will run the lane. `capacity`: rows of every microbatch, micro_batch_size.
  virtual std::unique_ptr<Lane> make_lane(const Network& network, int capacity) = 0;
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace dtrun::worker
