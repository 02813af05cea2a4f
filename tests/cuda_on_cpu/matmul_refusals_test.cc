// cuBLASLt's stand-in: what it refuses, as the real library does.
#include <cublasLt.h>

#include <string>
#include <vector>

#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/device_test.h"
#include "tests/cuda_on_cpu/matmul_problem.h"

namespace dtrun::matmul_refusals_test {

#define LT(call) REQUIRE((call) == CUBLAS_STATUS_SUCCESS)

namespace {

using namespace cuda_on_cpu;

constexpr auto kNone = CUBLAS_STATUS_NOT_SUPPORTED, kWrong = CUBLAS_STATUS_INVALID_VALUE;

// D = A B, D: m x n, all of it in bf16 unless `type` says otherwise.
struct Case {
  Case(std::uint64_t m, std::uint64_t n, std::uint64_t k, std::uint64_t padding = 0,
       cudaDataType_t type = CUDA_R_16BF)
      : a((m + padding) * k * 4), b((k + padding) * n * 4), d((m + padding) * n * 4), bias(m * 4) {
    LT(cublasLtCreate(&handle));
    LT(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT(cublasLtMatrixLayoutCreate(&layout_a, type, m, k, static_cast<std::int64_t>(m + padding)));
    LT(cublasLtMatrixLayoutCreate(&layout_b, type, k, n, static_cast<std::int64_t>(k + padding)));
    LT(cublasLtMatrixLayoutCreate(&layout_d, type, m, n, static_cast<std::int64_t>(m + padding)));
    LT(cublasLtMatmulPreferenceCreate(&preference));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(d.data()));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(m));
  }
  ~Case() {
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    for (const auto layout : {layout_a, layout_b, layout_d})
      CHECK(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescDestroy(description) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  }
  Case(const Case&) = delete;

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    LT(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
  }
  void align_b(std::uint32_t bytes) {
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &bytes,
                                            sizeof bytes));
  }
  cublasStatus_t choose() {
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, description, layout_a, layout_b, layout_d, layout_d,
                                          preference, 1, &found, &count);
  }
  cublasStatus_t matmul(const void* a, void* d, const void* addend = nullptr, float beta = 0) {
    const float one = 1;
    return cublasLtMatmul(handle, description, &one, a, layout_a, b.data(), layout_b, &beta, addend, layout_d,
                          d, layout_d, &found.algo, nullptr, 0, nullptr);
  }

  const OnDevice<char> a, b, d, bias;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found{};
};

TEST_CASE("what the real library has no algorithm for is refused") {
  const Restored restored;
  Case c(16, 8, 16);
  const auto refused = [&](auto attribute, auto value, auto before, cublasStatus_t status,
                           const std::string& why) {
    c.set(attribute, value);
    CHECK(c.choose() == status);
    CHECK(matmul_refusal() == why);
    c.set(attribute, before);
    LT(c.choose());
  };
  refused(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DEFAULT, kNone,
          "epilogue 136");
  refused(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, kNone,
          "the sums of a B that is not transposed");
  refused(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_C, CUBLAS_OP_N, kNone, "an operation other than N and T");
  refused(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T, CUBLAS_OP_N, kWrong,
          "shapes of A, B, C and D do not fit together");
  refused(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{20}, std::int64_t{16}, kNone,
          "the auxiliary leading dimension is no multiple of 8");
  refused(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{8}, std::int64_t{16}, kWrong,
          "columns of the auxiliary matrix overlap");
  refused(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F, CUDA_R_16BF, kNone,
          "a bias, or its gradient, of another type than D");
  refused(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(c.d.data() + 1),
          static_cast<void*>(c.d.data()), kNone, "an auxiliary matrix that is less aligned than 16 bytes");
  c.align_b(8);
  CHECK(c.choose() == kNone);
}

TEST_CASE("the heuristic has nothing for misaligned matmuls of bf16, if a test asks for that") {
  const Restored restored;
  settings.misaligned_products = false;
  const auto finds = [](Case&& c, std::uint32_t alignment = 256) {
    c.align_b(alignment);
    const cublasStatus_t status = c.choose();
    CHECK((status == CUBLAS_STATUS_SUCCESS || matmul_refusal() == "a misaligned matmul"));
    return status == CUBLAS_STATUS_SUCCESS;
  };
  CHECK(finds({16, 24, 32}));
  CHECK(finds({16, 24, 32}, 16));
  CHECK_FALSE(finds({16, 24, 32}, 8));
  CHECK_FALSE(finds({17, 24, 32}));     // a column of A and D
  CHECK_FALSE(finds({16, 24, 33}));     // one of B
  CHECK_FALSE(finds({16, 24, 32, 4}));  // a leading dimension
  CHECK(finds({17, 25, 33, 4, CUDA_R_32F}));
}

TEST_CASE("operands that overlap D, lie elsewhere or are less aligned than said are refused") {
  const Restored restored;
  Case c(16, 16, 16);
  LT(c.choose());  // for operands aligned to 256 bytes
  const OnDevice<char> large(std::vector<char>(4096, 0));
  std::vector<char> host(4096);
  const auto refused = [&](cublasStatus_t status, const std::string& why) {
    CHECK(status != CUBLAS_STATUS_SUCCESS);
    CHECK(matmul_refusal() == why);
  };
  refused(c.matmul(host.data(), c.d.data()), "A is not in device memory");
  refused(c.matmul(large.data() + 4000, c.d.data()), "A does not lie in one allocation");
  refused(c.matmul(large.data() + 16, c.d.data()), "A is less aligned than said");
  refused(c.matmul(large.data(), large.data() + 256), "A overlaps D");
  refused(c.matmul(large.data(), large.data()), "an operand is D");
  refused(c.matmul(c.a.data(), large.data(), large.data() + 256, 1), "C overlaps D");
  LT(c.matmul(c.a.data(), large.data(), large.data(), 1));
  Case other(16, 16, 32);
  other.found = c.found;
  refused(other.matmul(large.data(), c.d.data()), "an algorithm that was found for another matmul");
  c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  LT(c.choose());
  LT(c.matmul(c.a.data(), large.data()));
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(host.data()));
  refused(c.matmul(c.a.data(), large.data()), "the bias is not in device memory");
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
  refused(c.matmul(c.a.data(), large.data()), "the bias is null");
  OK(cudaDeviceSynchronize());
}

}  // namespace

}  // namespace dtrun::matmul_refusals_test
