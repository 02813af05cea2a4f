// cuBLASLt's stand-in: results.
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/matmul_case.h"

namespace {

using namespace cuda_on_cpu;

TEST_CASE("matmuls of all transpositions, types and odd shapes agree with double precision") {
  const Restored restored;
  unsigned seed = 1;
  for (const bool transposed_a : {false, true}) {
    for (const bool transposed_b : {false, true}) {
      for (const auto& [in, out] :
           {std::pair{CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_32F, CUDA_R_32F}}) {
        for (const auto& [m, n, k] : {std::tuple{1, 1, 1}, {17, 5, 3}, {16, 4, 64}, {40, 33, 100}}) {
          for (const float beta : {0.0f, 1.0f}) {
            Setup setup{static_cast<std::size_t>(m), static_cast<std::size_t>(n),
                        static_cast<std::size_t>(k)};
            setup.transposed_a = transposed_a;
            setup.transposed_b = transposed_b;
            setup.in = in;
            setup.out = out;
            setup.beta = beta;
            setup.alpha = beta == 0 ? 1.0f : 0.5f;
            setup.padding = 3;
            Case c(setup, seed += 10);
            LT(c.matmul());
            check_plain(c);
          }
        }
      }
    }
  }
}

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_CASE("epilogues do what the manual says") {
  const Restored restored;
  struct Expected {
    cublasLtEpilogue_t epilogue;
    std::function<double(double product, double bias, double aux)> d;
  };
  const auto derivative = [](double x) { return (gelu_of(x + 1e-5) - gelu_of(x - 1e-5)) / 2e-5; };
  const auto same = [](double x, double, double) { return x; };
  const Expected all[] = {
      {CUBLASLT_EPILOGUE_BIAS, [](double x, double b, double) { return x + b; }},
      {CUBLASLT_EPILOGUE_RELU, [](double x, double, double) { return std::max(x, 0.0); }},
      {CUBLASLT_EPILOGUE_RELU_BIAS, [](double x, double b, double) { return std::max(x + b, 0.0); }},
      {CUBLASLT_EPILOGUE_GELU, [](double x, double, double) { return gelu_of(x); }},
      {CUBLASLT_EPILOGUE_GELU_BIAS, [](double x, double b, double) { return gelu_of(x + b); }},
      {CUBLASLT_EPILOGUE_GELU_AUX, [](double x, double, double) { return gelu_of(x); }},
      {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, [](double x, double b, double) { return gelu_of(x + b); }},
      {CUBLASLT_EPILOGUE_DGELU, [&](double x, double, double aux) { return x * derivative(aux); }},
      {CUBLASLT_EPILOGUE_DGELU_BGRAD, [&](double x, double, double aux) { return x * derivative(aux); }},
      {CUBLASLT_EPILOGUE_BGRADA, same},
      {CUBLASLT_EPILOGUE_BGRADB, same},
  };
  for (const Expected& expected : all) {
    for (const cudaDataType_t out : {CUDA_R_16BF, CUDA_R_32F}) {
      CAPTURE(expected.epilogue);
      Setup setup{24, 19, 30};
      setup.epilogue = expected.epilogue;
      setup.out = out;
      setup.transposed_a = expected.epilogue != CUBLASLT_EPILOGUE_BGRADA;
      setup.transposed_b = expected.epilogue == CUBLASLT_EPILOGUE_BGRADB;
      setup.beta = 0.5f;
      Case c(setup, 77);
      LT(c.matmul());
      const Values got = Values::of(out, c.on_d.get()), bias = Values::of(out, c.on_bias.get()),
                   aux = Values::of(out, c.on_aux.get());
      std::vector<double> columns_summed(setup.m), a_summed(setup.m), b_summed(setup.n);
      double worst = 0;
      const auto compare = [&](double is, double want) {
        worst = dtrun::test::worst_of(worst, std::abs(is - want) / tolerance(out, want));
      };
      const unsigned e = expected.epilogue;
      for (std::size_t j = 0; j < setup.n; ++j) {
        for (std::size_t i = 0; i < setup.m; ++i) {
          const double plain = c.plain(i, j), aux_before = c.aux.floats[i + j * c.ld_aux];
          const double want = expected.d(plain, c.bias.floats[i], aux_before);
          compare(got.floats[i + j * c.ld_d], want);
          columns_summed[i] += want;
          if ((e & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
            compare(aux.floats[i + j * c.ld_aux],
                    plain + (e & CUBLASLT_EPILOGUE_BIAS ? c.bias.floats[i] : 0));
          } else {
            CHECK(aux.floats[i + j * c.ld_aux] == c.aux.floats[i + j * c.ld_aux]);
          }
        }
      }
      for (std::size_t k = 0; k < setup.k; ++k) {
        for (std::size_t i = 0; i < setup.m; ++i) a_summed[i] += c.op_a(i, k);
        for (std::size_t j = 0; j < setup.n; ++j) b_summed[j] += c.op_b(k, j);
      }
      const std::vector<double> bias_before(c.bias.floats.begin(), c.bias.floats.end());
      std::vector<double> bias_wanted = e == CUBLASLT_EPILOGUE_DGELU_BGRAD ? columns_summed
                                        : e == CUBLASLT_EPILOGUE_BGRADA    ? a_summed
                                        : e == CUBLASLT_EPILOGUE_BGRADB    ? b_summed
                                                                           : bias_before;
      for (std::size_t i = 0; i < bias_wanted.size(); ++i) compare(bias.floats[i], bias_wanted[i]);
      for (std::size_t i = bias_wanted.size(); i < bias_before.size(); ++i)
        CHECK(bias.floats[i] == bias_before[i]);
      CHECK(worst < 1);
    }
  }
}

TEST_CASE("batches lie a stride apart") {
  const Restored restored;
  Setup setup{4, 6, 8};
  setup.out = setup.in = CUDA_R_32F;
  Case c(setup);
  const std::int32_t batches = 2;
  // A's second matrix is its first, B's its own columns 3 to 5.
  Setup half = setup;
  half.n = 3;
  Case first(half, 1);
  const auto use = [&](cublasLtMatrixLayout_t layout, std::int64_t stride, std::uint64_t columns) {
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                        sizeof batches));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                        sizeof stride));
    LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns));
  };
  use(c.layout_a, 0, 8);
  use(c.layout_b, 3 * 8, 3);
  use(c.layout_d, 3 * 4, 3);
  LT(c.matmul());
  check_plain(c);  // together they are the whole matmul
}

TEST_CASE("a matmul runs in its stream's order, and its numbers are counted") {
  const Restored restored;
  Case c({16, 16, 16});
  reset_counters();
  const auto before = c.on_d.get();
  LT(c.matmul());
  CHECK(counters().matmuls == 0);
  OK(cudaStreamSynchronize(nullptr));
  CHECK(counters().matmuls == 1);
  CHECK(c.on_d.get() != before);
}

TEST_CASE("a planned fault hits a matmul as it does a kernel") {
  const Restored restored;
  Case c({16, 16, 16});
  OK(cudaDeviceSynchronize());
  plan_faults({.launch = 2, .launch_error = cudaErrorECCUncorrectable});
  LT(c.matmul());
  LT(c.matmul());
  CHECK(cudaDeviceSynchronize() == cudaErrorECCUncorrectable);
  CHECK(c.matmul() == CUBLAS_STATUS_EXECUTION_FAILED);
  plan_faults({});
  cudaGetLastError();
}

}  // namespace
