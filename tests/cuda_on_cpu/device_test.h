// The common parts of the stand-in's tests: calls that must succeed, streams and memory that are given back.
#pragma once

#include <cuda_on_cpu.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/machine.h"

#define OK(call) REQUIRE((call) == cudaSuccess)

namespace cuda_on_cpu {

// Settings, machine and faults as they were, and nothing left of what the case made.
class Restored {
 public:
  ~Restored() {
    plan_faults({});
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    settings = settings_before_;
    machine = machine_before_;
    set_current_device(0);
    CHECK(alive() == alive_before_);
    cudaGetLastError();
  }

 private:
  Settings settings_before_ = settings;
  Machine machine_before_ = machine;
  Alive alive_before_ = alive();
};

class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    OK(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~TestStream() { CHECK(cudaStreamDestroy(stream_) == cudaSuccess); }
  TestStream(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    OK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~TestEvent() { CHECK(cudaEventDestroy(event_) == cudaSuccess); }
  TestEvent(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// n of T in device memory.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t n) : n_(n) {
    OK(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)));
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) { put(values); }
  ~OnDevice() { CHECK(cudaFree(data_) == cudaSuccess); }
  OnDevice(const OnDevice&) = delete;
  T* data() const { return data_; }
  void put(const std::vector<T>& values) const {
    OK(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    OK(cudaDeviceSynchronize());
  }
  // Without waiting for streams that are cudaStreamNonBlocking.
  std::vector<T> get() const {
    std::vector<T> values(n_);
    OK(cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t n_;
  T* data_ = nullptr;
};

// n of T in pinned memory.
template <typename T>
class Pinned {
 public:
  explicit Pinned(std::size_t n) : n_(n) {
    OK(cudaHostAlloc(reinterpret_cast<void**>(&data_), n * sizeof(T), cudaHostAllocDefault));
  }
  ~Pinned() { CHECK(cudaFreeHost(data_) == cudaSuccess); }
  Pinned(const Pinned&) = delete;
  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t bytes() const { return n_ * sizeof(T); }

 private:
  std::size_t n_;
  T* data_ = nullptr;
};

}  // namespace cuda_on_cpu
