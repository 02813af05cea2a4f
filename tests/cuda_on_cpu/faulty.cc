// Kernels and hosts with faults, one per run: faulty NAME [forward|reverse|random]. planted_test.cc looks at
// what becomes of each. NAME without its last word is the same without the fault.
#include <cuda_on_cpu.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/traffic.h"

namespace {

using cuda_on_cpu::launch;

constexpr unsigned kThreads = 64;

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorName(error));
  std::exit(3);
}

float* device_floats(std::size_t count) {
  float* data = nullptr;
  must(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)));
  must(cudaMemset(data, 0, count * sizeof(float)));
  must(cudaDeviceSynchronize());
  return data;
}

// Prints the bits of a sum that depends on each place.
void print(const float* device, std::size_t count) {
  std::vector<float> host(count);
  must(cudaDeviceSynchronize());
  must(cudaMemcpy(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum = sum * 1.5f + host[i];
  std::printf("%a\n", static_cast<double>(sum));
}

__global__ void turn_around(float* out, bool waits) {
  SHARED_ARRAY(float, all, kThreads);
  all[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (waits) __syncthreads();
  out[threadIdx.x] = all[kThreads - 1 - threadIdx.x];
}

__global__ void reads_dynamic(float* out, unsigned index) {
  DYNAMIC_SHARED(float, all);
  all[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = all[index];
}

__global__ void fill(float* out) { out[threadIdx.x] = 1; }

__global__ void load_four(float* out, const float* in) { *out = reinterpret_cast<const float4*>(in)->w; }

__global__ void copy_early(float* out, const float* in, bool waits) {
  if (waits) cuda_on_cpu::wait_for_previous();
  out[threadIdx.x] = in[threadIdx.x];
}

// In a race of blocks the last one wins.
__global__ void blocks_race(float* out, bool races) {
  out[races ? 0 : blockIdx.x] = static_cast<float>(blockIdx.x);
}

void turn(bool waits) {
  float* const out = device_floats(kThreads);
  launch(turn_around, 1, kThreads, 0, nullptr, out, waits);
  print(out, kThreads);
}

void race(bool races) {
  float* const out = device_floats(3);
  launch(blocks_race, 3, 1, 0, nullptr, out, races);
  print(out, 3);
}

void read_shared(unsigned index) {
  float* const out = device_floats(1);
  launch(reads_dynamic, 1, kThreads, kThreads * sizeof(float), nullptr, out, index);
  print(out, 1);
}

void fill_from(int offset) {
  float* const out = device_floats(kThreads);
  device_floats(kThreads);  // a neighbour
  launch(fill, 1, kThreads, 0, nullptr, out + offset);
  print(out, kThreads);
}

void free_before(bool synchronised) {
  float* const out = device_floats(kThreads);
  launch(fill, 1, kThreads, 0, nullptr, out);
  if (synchronised) must(cudaDeviceSynchronize());
  must(cudaFree(out));
  must(cudaDeviceSynchronize());
}

void free_pinned_before(bool synchronised) {
  float *const out = device_floats(kThreads), *pinned = nullptr;
  must(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kThreads * sizeof(float), cudaHostAllocDefault));
  must(cudaMemcpyAsync(out, pinned, kThreads * sizeof(float), cudaMemcpyHostToDevice, nullptr));
  if (synchronised) must(cudaDeviceSynchronize());
  must(cudaFreeHost(pinned));
  must(cudaDeviceSynchronize());
}

void load_from(int offset) {
  float *const out = device_floats(1), *const in = device_floats(8);
  launch(load_four, 1, 1, 0, nullptr, out, in + offset);
  print(out, 1);
}

void copy_behind(bool waits) {
  float *const in = device_floats(kThreads), *const out = device_floats(kThreads);
  cuda_on_cpu::list_launches();
  launch(fill, 1, kThreads, 0, nullptr, in);
  cuda_on_cpu::launch_kernel(true, copy_early, 1, kThreads, 0, nullptr, out, in, waits);
  print(out, kThreads);
}

void look(bool behind) {
  float* const out = device_floats(1);
  must(cudaDeviceSynchronize());
  if (behind) std::printf("%f\n", static_cast<double>(*static_cast<volatile float*>(out)));
}

const std::map<std::string, std::function<void()>> kFaults = {
    {"barrier", [] { turn(true); }},
    {"barrier missing", [] { turn(false); }},
    {"blocks", [] { race(false); }},
    {"blocks race", [] { race(true); }},
    {"shared", [] { read_shared(kThreads - 1); }},
    {"shared overrun", [] { read_shared(kThreads); }},
    {"global", [] { fill_from(0); }},
    {"global overrun", [] { fill_from(1); }},
    {"free", [] { free_before(true); }},
    {"free early", [] { free_before(false); }},
    {"pinned", [] { free_pinned_before(true); }},
    {"pinned early", [] { free_pinned_before(false); }},
    {"load", [] { load_from(4); }},
    {"load misaligned", [] { load_from(1); }},
    {"programmatic", [] { copy_behind(true); }},
    {"programmatic without-wait", [] { copy_behind(false); }},
    {"programmatic compiled-for-80",
     [] {
       cuda_on_cpu::settings.compiled_for = 80;
       copy_behind(true);
     }},
    {"look", [] { look(false); }},
    {"look behind", [] { look(true); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    const std::string order = argv[2];
    cuda_on_cpu::settings.threads = cuda_on_cpu::settings.blocks =
        order == "forward"   ? cuda_on_cpu::Order::kForward
        : order == "reverse" ? cuda_on_cpu::Order::kReverse
                             : cuda_on_cpu::Order::kRandom;
  }
  const auto found = argc < 2 ? kFaults.end() : kFaults.find(argv[1]);
  if (found == kFaults.end()) {
    std::fprintf(stderr, "faulty: no such fault\n");
    return 2;
  }
  found->second();
  std::printf("done\n");
}
