#include "tests/cuda_on_cpu/counters.h"

#include <mutex>

#include "tests/cuda_on_cpu/kernel_names.h"
#include "tests/cuda_on_cpu/memory.h"
#include "tests/cuda_on_cpu/scheduler.h"

namespace cuda_on_cpu {
namespace {

struct Counted {
  std::mutex mutex;  // guards all below
  Counters counters;
  std::map<const void*, std::uint64_t> kernels;
  std::size_t matmul_objects = 0;
};

Counted& counted() {
  static Counted& counted = *new Counted;
  return counted;
}

}  // namespace

Counters counters() {
  const std::lock_guard lock(counted().mutex);
  Counters result = counted().counters;
  for (const auto& [kernel, count] : counted().kernels)
    result.kernels_by_name[function_name(kernel)] += count;
  return result;
}

void reset_counters() {
  const std::lock_guard lock(counted().mutex);
  counted().counters = {};
  counted().kernels.clear();
}

void count_kernel(const void* kernel) {
  const std::lock_guard lock(counted().mutex);
  ++counted().kernels[kernel];
}

void count_product(const std::string& algorithm) {
  const std::lock_guard lock(counted().mutex);
  ++counted().counters.matmuls;
  ++counted().counters.products_by_algorithm[algorithm];
}

void count_graph() {
  const std::lock_guard lock(counted().mutex);
  ++counted().counters.graphs;
}

void count_nccl_group() {
  const std::lock_guard lock(counted().mutex);
  ++counted().counters.nccl_groups;
}

void count_upload(std::size_t bytes) {
  const std::lock_guard lock(counted().mutex);
  counted().counters.copied_to_device += bytes;
}

void count_pageable_copy(std::size_t bytes) {
  const std::lock_guard lock(counted().mutex);
  counted().counters.copied_pageable[std::this_thread::get_id()] += bytes;
}

void count_matmul_object(int change) {
  const std::lock_guard lock(counted().mutex);
  counted().matmul_objects += static_cast<std::size_t>(change);
}

Alive alive() {
  Alive alive = scheduler().alive();
  const Allocated memory = allocated();
  alive.device_allocations = memory.device;
  alive.pinned_allocations = memory.pinned;
  const std::lock_guard lock(counted().mutex);
  alive.matmul_objects = counted().matmul_objects;
  return alive;
}

}  // namespace cuda_on_cpu
