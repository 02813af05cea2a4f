// Counts the work of the simulated device, so that a test can compare a step with its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

namespace cuda_on_cpu {

struct Counters {
  std::uint64_t matmuls = 0;                                   // cublasLtMatmul
  std::map<std::string, std::uint64_t> products_by_algorithm;  // "tile 20, split 4"
  std::uint64_t graphs = 0;
  std::uint64_t nccl_groups = 0;       // those of each communicator, counted at their launch
  std::uint64_t copied_to_device = 0;  // bytes
  // Bytes that each thread copies between device memory and pageable memory of the host: it waits while CUDA
  // passes them through a buffer of its own. Not those up to 64 KiB to the device, which are sent along with
  // the call (CUDA's programming guide, "Implicit Synchronization"). Counted when they are enqueued or
  // captured.
  std::map<std::thread::id, std::uint64_t> copied_pageable;
  std::map<std::string, std::uint64_t> kernels_by_name;  // as in the source, with arguments of templates only
};

// Counted when they run, in a graph as well, where nothing else is said.
Counters counters();
void reset_counters();

void count_kernel(const void* kernel);
void count_product(const std::string& algorithm);
void count_graph();
void count_nccl_group();
void count_upload(std::size_t bytes);         // to the device
void count_pageable_copy(std::size_t bytes);  // made by the calling thread

// The objects that exist now, so that a test can find those that were not given back.
struct Alive {
  std::size_t streams = 0, events = 0, graphs = 0;             // graphs: both kinds
  std::size_t device_allocations = 0, pinned_allocations = 0;  // pinned: registered ranges, too
  std::size_t matmul_objects = 0;  // handles, descriptors, layouts and preferences of cuBLASLt
  bool operator==(const Alive&) const = default;
};
Alive alive();

// cuBLASLt's objects: one more, or one less.
void count_matmul_object(int change);

}  // namespace cuda_on_cpu
