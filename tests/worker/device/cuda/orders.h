// Orders that CUDA leaves open, for tests that compute the same under all of them. Two definitions: the
// stand-in for a GPU can be told (orders_on_cpu.cc); a GPU has an order of its own, which repeating may
// change (orders_on_gpu.cc).
#pragma once

namespace dtrun::worker::cuda::testing {

// As long as it lives, threads and blocks run in another order for every `number`; 0 is as written.
class OtherOrder {
 public:
  explicit OtherOrder(unsigned number);
  ~OtherOrder();
  OtherOrder(const OtherOrder&) = delete;
};

// The same, and streams run in any order that events allow.
class OtherOrderOfStreams {
 public:
  explicit OtherOrderOfStreams(unsigned seed);
  ~OtherOrderOfStreams();
  OtherOrderOfStreams(const OtherOrderOfStreams&) = delete;
};

}  // namespace dtrun::worker::cuda::testing
