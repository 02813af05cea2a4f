#include "tests/cuda_on_cpu/grid.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/settings.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kDynamicSharedBytes = 48 * 1024;  // more must be asked for, which no kernel does

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& thread) {
  static Block& block = *new Block;  // with the stacks of its fibers, for the next grid
  const unsigned blocks = grid.blocks.x * grid.blocks.y * grid.blocks.z;
  std::vector<unsigned> order;
  if (settings.blocks == Order::kRandom) {
    order.resize(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(settings.seed));
  }
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned b = settings.blocks == Order::kForward   ? i
                       : settings.blocks == Order::kReverse ? blocks - 1 - i
                                                            : order[i];
    const uint3 index = {b % grid.blocks.x, b / grid.blocks.x % grid.blocks.y,
                         b / (grid.blocks.x * grid.blocks.y)};
    block.run(grid.blocks, grid.threads, index, grid.dynamic_bytes, thread);
  }
}

cudaError_t check_grid(const Grid& grid) {
  const dim3& b = grid.blocks;
  const dim3& t = grid.threads;
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 2147483647u || b.y > 65535 || b.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  if (t.x == 0 || t.y == 0 || t.z == 0 || t.x > 1024 || t.y > 1024 || t.z > 64 ||
      t.x * t.y * t.z > kMaxThreads) {
    return cudaErrorInvalidConfiguration;
  }
  return grid.dynamic_bytes > kDynamicSharedBytes ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace cuda_on_cpu
