// A device runs a program, and does the arithmetic on its flat vectors. A lane is one executor on it: a
// thread (CPU) or a stream (CUDA) with its own activation arena, running one microbatch at a time. A lane's
// results for a microbatch depend on the parameters, the samples and the device alone; never on other lanes,
// the rank or the world size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/core/exit_codes.h"
#include "proto/core/training.h"
#include "worker/base/error.h"
#include "worker/core/device_use.h"
#include "worker/core/dropout.h"
#include "worker/device/op_timer.h"
#include "worker/model/program.h"
#include "worker/vector/arithmetic.h"
#include "worker/vector/device_communicator.h"

namespace dtrun::worker {

// Host memory. `capacity` rows are laid out; the first `samples` are real. The others are zero and add
// nothing. Has values or tokens, whichever the program's samples are.
struct Microbatch {
  int samples = 0;                        // 1..capacity
  const float* values = nullptr;          // [capacity, channels, height, width]
  const std::int32_t* tokens = nullptr;   // [capacity, length]
  const std::int32_t* targets = nullptr;  // [capacity, targets]
  MicrobatchKey key = {};
};

// Sums over the targets of the microbatch's real samples.
struct MicrobatchStats {
  float loss = 0;     // negative log-likelihood
  float correct = 0;  // targets that are the class of the largest output
};

class Lane {
 public:
  virtual ~Lane() = default;

  // The stream that train() enqueues on. Used by the lane's thread.
  virtual Stream& stream() = 0;
  // The stream whose work completes a bucket when train() calls ready() with the bucket; later work on the
  // bucket goes behind it. The rest of backward does not wait for that work, if the device can do both at
  // once.
  virtual Stream& gradients() { return stream(); }

  // `weights` (device memory, Program::size floats) has new values. Must be called before the first
  // microbatch and after each optimizer step. The lane reads them in place, as long as it is used; it may
  // reorder some of them into a layout of its own.
  virtual void parameters_changed(const float* weights) = 0;

  // Copies the samples of a microbatch to the device beside its computations, for a later train(). The
  // microbatch is free for other use when this returns. Does nothing where the host's memory is the device's.
  virtual void prepare(const Microbatch&) {}
  // Whether train() needs only the key of that microbatch: prepare() was last called with it, and nothing was
  // trained or evaluated since.
  virtual bool is_prepared(const MicrobatchKey&) const { return false; }

  // Enqueues forward and backward. Overwrites `out` (device memory, kStatisticsFloats + Program::size floats)
  // with the microbatch's statistics and the gradient of the SUM of its targets' losses. Calls ready(bucket)
  // from this thread, in bucket order, once all work that makes the bucket of the gradient is enqueued, and
  // before the last call also the work that makes the statistics. The microbatch is free for other use when
  // this returns.
  virtual void train(const Microbatch& microbatch, float* out,
                     const std::function<void(int bucket)>& ready) = 0;

  // train() in lock step with the lanes of other microbatches, whose batch norms are made together: go_on()
  // returns at each norm, in forward and in backward, with the microbatch's sums, of which the caller makes
  // those of all of these microbatches in their place before it calls again; with nothing once all is done.
  // The samples, `out` and the weights stay until then. Any thread, one at a time.
  virtual void begin(const Microbatch&, float* /*out*/) {
    throw WorkerError(kExitSoftware, "no lane of this device goes in lock step");
  }
  virtual std::span<double> go_on(const std::function<void(int bucket)>&) { return {}; }

  // Blocks until the result is there.
  virtual MicrobatchStats evaluate(const Microbatch& microbatch) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // Names everything that the results' bits depend on, for people and for the checkpoint: the kind of device,
  // the libraries that compute on it and their versions. Includes the libraries that lanes use only once the
  // lanes are made.
  virtual std::string fingerprint() const = 0;
  // The arithmetic on the memory that the lanes work on. Lives as long as the device.
  virtual Arithmetic& arithmetic() = 0;
  // Call on the thread that will run the lane. `capacity`: rows of every microbatch, micro_batch_size.
  virtual std::unique_ptr<Lane> make_lane(const Program& program, int capacity) = 0;

  // Links between the devices of these ranks; null where devices have no links of their own, so that vectors
  // go through the hosts' memory. All ranks call it, and all get links or none does. Blocks. Throws the
  // links' exceptions, and WorkerError with the device's exit code if the device is at fault.
  virtual std::unique_ptr<DeviceCommunicator> make_links(const CommunicatorBootstrap&) { return nullptr; }

  // Times the operations of all lanes, and other work that is enqueued on the device. Lives as long as the
  // device.
  virtual OpTimer& timer() = 0;
  // Called by Range (range.h). Any thread; the ranges of a thread are nested.
  virtual void enter_range(const char*) {}
  virtual void leave_range() {}

  // For people and metrics.jsonl: "cpu", "cuda".
  virtual std::string name() const { return "cpu"; }
  // Nothing where the device has no memory of its own. Cheap, any thread: called several times a second.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }
  // Complete only at the end of a run: some implementations are chosen at their first use. Any thread.
  virtual DeviceUse use() const { return {}; }
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace dtrun::worker
