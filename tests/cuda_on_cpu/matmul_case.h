// A matmul for the tests of cuBLASLt's stand-in, with the result that it should have.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/device_test.h"
#include "tests/support/worst.h"

#define LT(call) REQUIRE((call) == CUBLAS_STATUS_SUCCESS)

namespace cuda_on_cpu {

// A matmul D = op(A) op(B) with everything that cuBLASLt wants to know, filled with random numbers.
struct Setup {
  std::size_t m = 0, n = 0, k = 0;
  bool transposed_a = false, transposed_b = false;
  cudaDataType_t in = CUDA_R_16BF, out = CUDA_R_16BF;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1, beta = 0;
  std::size_t padding = 0;  // between columns
};

// Values as a type holds them, in host memory as floats.
struct Values {
  cudaDataType_t type;
  std::vector<float> floats;

  std::size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
  std::vector<char> bytes() const {
    std::vector<char> out(floats.size() * element());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (type == CUDA_R_32F) {
        reinterpret_cast<float*>(out.data())[i] = floats[i];
      } else {
        reinterpret_cast<__nv_bfloat16*>(out.data())[i] = __float2bfloat16_rn(floats[i]);
      }
    }
    return out;
  }
  static Values of(cudaDataType_t type, const std::vector<char>& bytes) {
    Values values{type, {}};
    values.floats.resize(bytes.size() / values.element());
    for (std::size_t i = 0; i < values.floats.size(); ++i) {
      values.floats[i] = type == CUDA_R_32F
                             ? reinterpret_cast<const float*>(bytes.data())[i]
                             : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(bytes.data())[i]);
    }
    return values;
  }
};

inline Values random_values(cudaDataType_t type, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values{type, std::vector<float>(count)};
  for (float& x : values.floats) x = normal(random);
  return Values::of(type, values.bytes());  // rounded
}

class Case {
 public:
  explicit Case(const Setup& setup, unsigned seed = 1)
      : s(setup),
        a_rows(s.transposed_a ? s.k : s.m),
        a_columns(s.transposed_a ? s.m : s.k),
        b_rows(s.transposed_b ? s.n : s.k),
        b_columns(s.transposed_b ? s.k : s.n),
        ld_a(a_rows + s.padding),
        ld_b(b_rows + s.padding),
        ld_d(s.m + s.padding),
        ld_aux((s.m + 7) / 8 * 8),
        a(random_values(s.in, ld_a * a_columns, seed)),
        b(random_values(s.in, ld_b * b_columns, seed + 1)),
        d(random_values(s.out, ld_d * s.n, seed + 2)),
        bias(random_values(s.out, std::max(s.m, s.n), seed + 3)),
        aux(random_values(s.out, ld_aux * s.n, seed + 4)),
        on_a(a.bytes()),
        on_b(b.bytes()),
        on_d(d.bytes()),
        on_bias(bias.bytes()),
        on_aux(aux.bytes()) {
    LT(cublasLtCreate(&handle));
    LT(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, s.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, on_bias.data());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, s.out);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, on_aux.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(ld_aux));
    LT(cublasLtMatrixLayoutCreate(&layout_a, s.in, a_rows, a_columns, static_cast<std::int64_t>(ld_a)));
    LT(cublasLtMatrixLayoutCreate(&layout_b, s.in, b_rows, b_columns, static_cast<std::int64_t>(ld_b)));
    LT(cublasLtMatrixLayoutCreate(&layout_d, s.out, s.m, s.n, static_cast<std::int64_t>(ld_d)));
    LT(cublasLtMatmulPreferenceCreate(&preference));
    const std::uint64_t workspace = 1 << 20;
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                            sizeof workspace));
  }
  ~Case() {
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    for (const auto layout : {layout_a, layout_b, layout_d}) {
      CHECK(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_SUCCESS);
    }
    CHECK(cublasLtMatmulDescDestroy(description) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  }
  Case(const Case&) = delete;

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    LT(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
  }

  cublasStatus_t heuristic(cublasLtMatmulHeuristicResult_t* result) {
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, description, layout_a, layout_b, layout_d, layout_d, preference, 1, result, &found);
    CHECK(found == (status == CUBLAS_STATUS_SUCCESS ? 1 : 0));
    return status;
  }
  cublasStatus_t matmul(const cublasLtMatmulAlgo_t* algo = nullptr, void* workspace = nullptr,
                        std::size_t bytes = 0) {
    return cublasLtMatmul(handle, description, &s.alpha, on_a.data(), layout_a, on_b.data(), layout_b,
                          &s.beta, on_d.data(), layout_d, on_d.data(), layout_d, algo, workspace, bytes,
                          nullptr);
  }

  double op_a(std::size_t i, std::size_t k) const {
    return a.floats[s.transposed_a ? k + i * ld_a : i + k * ld_a];
  }
  double op_b(std::size_t k, std::size_t j) const {
    return b.floats[s.transposed_b ? j + k * ld_b : k + j * ld_b];
  }
  // alpha op(A) op(B) + beta C, in double.
  double plain(std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t k = 0; k < s.k; ++k) sum += op_a(i, k) * op_b(k, j);
    return s.alpha * sum + s.beta * d.floats[i + j * ld_d];
  }

  Setup s;
  std::size_t a_rows, a_columns, b_rows, b_columns, ld_a, ld_b, ld_d, ld_aux;
  Values a, b, d, bias, aux;
  OnDevice<char> on_a, on_b, on_d, on_bias, on_aux;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

// How far from the truth a value may be that has been summed in fp32 and rounded to `type`.
inline double tolerance(cudaDataType_t type, double value) {
  return (std::abs(value) + 1) * (type == CUDA_R_32F ? 2e-5 : 5e-3);
}

inline void check_plain(const Case& c) {
  const Values got = Values::of(c.s.out, c.on_d.get());
  double worst = 0;
  for (std::size_t j = 0; j < c.s.n; ++j) {
    for (std::size_t i = 0; i < c.s.m; ++i) {
      const double want = c.plain(i, j);
      worst = dtrun::test::worst_of(worst,
                                    std::abs(got.floats[i + j * c.ld_d] - want) / tolerance(c.s.out, want));
    }
    for (std::size_t i = c.s.m; i < c.ld_d; ++i)
      CHECK(got.floats[i + j * c.ld_d] == c.d.floats[i + j * c.ld_d]);
  }
  CHECK(worst < 1);
}

}  // namespace cuda_on_cpu
