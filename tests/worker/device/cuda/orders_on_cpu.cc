#include <cuda_on_cpu.h>

#include "tests/worker/device/cuda/orders.h"

namespace dtrun::worker::cuda::testing {

using cuda_on_cpu::Order, cuda_on_cpu::Policy;

OtherOrder::OtherOrder(unsigned number) {
  const Order order = number == 0 ? Order::kForward : number == 1 ? Order::kReverse : Order::kRandom;
  cuda_on_cpu::settings = {.threads = order, .blocks = order, .seed = number};
}
OtherOrder::~OtherOrder() { cuda_on_cpu::settings = cuda_on_cpu::settings_of_environment(); }

OtherOrderOfStreams::OtherOrderOfStreams(unsigned seed) {
  cuda_on_cpu::settings = {
      .threads = Order::kRandom, .blocks = Order::kRandom, .streams = Policy::kRandom, .seed = seed};
}
OtherOrderOfStreams::~OtherOrderOfStreams() {
  cuda_on_cpu::settings = cuda_on_cpu::settings_of_environment();
}

}  // namespace dtrun::worker::cuda::testing
