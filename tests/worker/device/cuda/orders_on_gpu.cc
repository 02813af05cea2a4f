#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/worker/device/cuda/orders.h"

namespace dtrun::worker::cuda::testing {

OtherOrder::OtherOrder(unsigned) {}
OtherOrder::~OtherOrder() = default;
OtherOrderOfStreams::OtherOrderOfStreams(unsigned) {}
OtherOrderOfStreams::~OtherOrderOfStreams() = default;

namespace {

// Skips every case, before the first, on a machine without a GPU.
class NeedsGpu : public doctest::IReporter {
 public:
  explicit NeedsGpu(const doctest::ContextOptions&) {}
  void test_run_start() override {
    int gpus = 0;
    const cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error == cudaSuccess && gpus > 0) return;
    std::printf("skipped: no GPU (%s)\n",
                error == cudaSuccess ? "CUDA shows none" : cudaGetErrorString(error));
    std::fflush(stdout);
    std::_Exit(77);
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("needs a GPU", 1, NeedsGpu);

}  // namespace
}  // namespace dtrun::worker::cuda::testing
