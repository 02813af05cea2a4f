// cuBLASLt's stand-in: results and refusals.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/device_test.h"
#include "tests/cuda_on_cpu/matmul_problem.h"
#include "tests/support/worst.h"

namespace {

using namespace cuda_on_cpu;

#define LT(call) REQUIRE((call) == CUBLAS_STATUS_SUCCESS)

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

Values random_values(cudaDataType_t type, std::size_t count, unsigned seed) {
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
double tolerance(cudaDataType_t type, double value) {
  return (std::abs(value) + 1) * (type == CUDA_R_32F ? 2e-5 : 5e-3);
}

void check_plain(const Case& c) {
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

TEST_CASE("an algorithm carries its shape, and a split changes the order of the sums and needs workspace") {
  const Restored restored;
  Setup setup{16, 16, 256};
  setup.out = CUDA_R_32F;
  Case c(setup);
  cublasLtMatmulHeuristicResult_t found;
  LT(c.heuristic(&found));
  CHECK(found.workspaceSize == 4 * 16 * 16 * sizeof(float));
  std::int32_t splits = 0;
  std::size_t written = 0;
  LT(cublasLtMatmulAlgoConfigGetAttribute(&found.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                          sizeof splits, &written));
  CHECK(splits == 4);
  CHECK(c.matmul(&found.algo) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "less workspace than the algorithm needs");
  const OnDevice<char> workspace(std::vector<char>(found.workspaceSize, 0));
  CHECK(c.matmul(&found.algo, workspace.data() + 16, found.workspaceSize - 16) ==
        CUBLAS_STATUS_INVALID_VALUE);
  LT(c.matmul(&found.algo, workspace.data(), found.workspaceSize));
  const auto split = c.on_d.get();
  check_plain(c);
  CHECK(workspace.get()[0] != 0);  // it is used
  LT(c.matmul(&found.algo, workspace.data(), found.workspaceSize));
  CHECK(c.on_d.get() == split);
  LT(c.matmul());
  CHECK(c.on_d.get() != split);
  check_plain(c);

  std::vector<Setup> others(6, setup);
  others[0].m = 8;
  others[1].n = 8;
  others[2].k = 128;
  others[3].transposed_a = true;
  others[4].out = CUDA_R_16BF;
  others[5].epilogue = CUBLASLT_EPILOGUE_RELU;
  for (const Setup& changed : others) {
    Case other(changed);
    CHECK(other.matmul(&found.algo, workspace.data(), found.workspaceSize) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(matmul_refusal() == "an algorithm that was found for another matmul");
  }

  cublasLtMatmulAlgo_t algo;
  LT(cublasLtMatmulAlgoInit(c.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F,
                            CUDA_R_32F, 1, &algo));
  splits = 2;
  LT(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits));
  const auto check = [&] {
    return cublasLtMatmulAlgoCheck(c.handle, c.description, c.layout_a, c.layout_b, c.layout_d, c.layout_d,
                                   &algo, &found);
  };
  CHECK(check() == CUBLAS_STATUS_NOT_SUPPORTED);
  const std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LT(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                          sizeof scheme));
  CHECK(check() == CUBLAS_STATUS_SUCCESS);
  CHECK(found.workspaceSize == 2 * 16 * 16 * sizeof(float));
}

TEST_CASE("what the real library would refuse is refused") {
  const Restored restored;
  Case c({16, 8, 16});
  cublasLtMatmulHeuristicResult_t found;
  const auto refused = [&](cublasStatus_t status, const std::string& why) {
    CHECK(c.matmul() == status);
    CHECK(matmul_refusal() == why);
  };
  const auto with = [&](auto attribute, auto value, auto before, cublasStatus_t status,
                        const std::string& why) {
    c.set(attribute, value);
    CHECK(c.heuristic(&found) == status);
    refused(status, why);
    c.set(attribute, before);
  };
  const auto none = CUBLAS_STATUS_NOT_SUPPORTED, wrong = CUBLAS_STATUS_INVALID_VALUE;
  with(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DEFAULT, none,
       "epilogue 136");
  with(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_C, CUBLAS_OP_N, none, "an operation other than N and T");
  with(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE, CUBLASLT_POINTER_MODE_HOST, none,
       "alpha and beta not on the host");
  with(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F, none,
       "a compute type other than fp32");
  with(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T, CUBLAS_OP_N, wrong,
       "shapes of A, B, C and D do not fit together");
  c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  CHECK(c.heuristic(&found) == CUBLAS_STATUS_SUCCESS);
  with(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{20}, std::int64_t{16}, none,
       "the auxiliary leading dimension is no multiple of 8");
  with(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{8}, std::int64_t{16}, wrong,
       "columns of the auxiliary matrix overlap");
  with(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F, CUDA_R_16BF, none,
       "a bias, or its gradient, of another type than D");
  with(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(c.on_aux.data() + 1),
       static_cast<void*>(c.on_aux.data()), none, "an auxiliary matrix that is less aligned than 16 bytes");
  with(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, none,
       "the sums of a B that is not transposed");
  const std::uint32_t little = 8, much = 16;
  const auto aligned = [&](const std::uint32_t& bytes) {
    LT(cublasLtMatmulPreferenceSetAttribute(c.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &bytes,
                                            sizeof bytes));
  };
  aligned(little);
  CHECK(c.heuristic(&found) == none);
  aligned(much);
  CHECK(c.heuristic(&found) == CUBLAS_STATUS_SUCCESS);
  LT(c.matmul(&found.algo));
  std::int32_t host = 0;
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &host);
  refused(wrong, "the bias is not in device memory");
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
  refused(wrong, "the bias is null");
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.on_bias.data() + 2);
  refused(wrong, "the bias does not lie in one allocation");
  c.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c.on_bias.data());
  const std::int64_t short_ld = 8;
  LT(cublasLtMatrixLayoutSetAttribute(c.layout_a, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, sizeof short_ld));
  refused(wrong, "columns overlap in A");
  const std::int64_t long_ld = 17;
  LT(cublasLtMatrixLayoutSetAttribute(c.layout_a, CUBLASLT_MATRIX_LAYOUT_LD, &long_ld, sizeof long_ld));
  refused(wrong, "A does not lie in one allocation");
  CHECK(cublasLtMatrixLayoutSetAttribute(c.layout_a, CUBLASLT_MATRIX_LAYOUT_LD, &long_ld, 4) == wrong);
  OK(cudaDeviceSynchronize());
}

TEST_CASE("a matmul is misaligned if a column of its operands, or a leading dimension, is off 16 bytes") {
  const auto product = [](bool transposed_a, bool transposed_b, std::uint64_t m, std::uint64_t n,
                          std::uint64_t k) {
    Problem p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.description.trans_a = transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    p.description.trans_b = transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    for (Layout* const layout : {&p.a, &p.b, &p.c}) {
      layout->type = CUDA_R_16BF;
      layout->ld = 64;
    }
    return p;
  };
  for (const bool transposed_a : {false, true}) {
    for (const bool transposed_b : {false, true}) {
      CAPTURE(transposed_a);
      CAPTURE(transposed_b);
      CHECK_FALSE(misaligned(product(transposed_a, transposed_b, 16, 24, 32)));
      CHECK(misaligned(product(transposed_a, transposed_b, 17, 24, 32)));  // a column of C
      CHECK(misaligned(product(transposed_a, transposed_b, 16, 25, 32)) == transposed_b);
      CHECK(misaligned(product(transposed_a, transposed_b, 16, 24, 33)) == (transposed_a || !transposed_b));
    }
  }
  for (Layout Problem::*const layout : {&Problem::a, &Problem::b, &Problem::c}) {
    Problem p = product(false, false, 16, 24, 32);
    (p.*layout).ld = 68;
    CHECK(misaligned(p));
    (p.*layout).type = CUDA_R_32F;
    CHECK_FALSE(misaligned(p));
  }
}

TEST_CASE("the heuristic has nothing for misaligned matmuls of bf16, if a test asks for that") {
  const Restored restored;
  settings.misaligned_products = false;
  const auto found = [](const Setup& setup, std::uint32_t alignment = 256) {
    Case c(setup);
    LT(cublasLtMatmulPreferenceSetAttribute(c.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                            &alignment, sizeof alignment));
    cublasLtMatmulHeuristicResult_t result;
    const cublasStatus_t status = c.heuristic(&result);
    if (status != CUBLAS_STATUS_SUCCESS) {
      CHECK(status == CUBLAS_STATUS_NOT_SUPPORTED);
      CHECK(matmul_refusal() == "a misaligned matmul");
    }
    return status == CUBLAS_STATUS_SUCCESS;
  };
  CHECK(found({16, 24, 32}));
  CHECK(found({16, 24, 32}, 16));
  CHECK_FALSE(found({16, 24, 32}, 8));
  CHECK_FALSE(found({17, 24, 32}));
  CHECK_FALSE(found({.m = 16, .n = 24, .k = 32, .padding = 4}));
  CHECK_FALSE(found({.m = 17, .n = 24, .k = 32, .out = CUDA_R_32F}));
  CHECK(found({.m = 17, .n = 25, .k = 33, .in = CUDA_R_32F, .out = CUDA_R_32F}));
  settings.misaligned_products = true;
  CHECK(found({17, 25, 33}));
}

TEST_CASE("operands that overlap D, lie elsewhere or are less aligned than said are refused") {
  const Restored restored;
  Case c({16, 16, 16});
  cublasLtMatmulHeuristicResult_t found;
  LT(c.heuristic(&found));  // for operands aligned to 256 bytes
  const float one = 1, zero = 0;
  const auto matmul = [&](const void* a, void* d, const void* addend, const float& beta) {
    return cublasLtMatmul(c.handle, c.description, &one, a, c.layout_a, c.on_b.data(), c.layout_b, &beta,
                          addend, c.layout_d, d, c.layout_d, &found.algo, nullptr, 0, nullptr);
  };
  const OnDevice<char> large(std::vector<char>(4096, 0));
  const std::vector<char> host(4096);
  char* const d = c.on_d.data();
  CHECK(matmul(host.data(), d, nullptr, zero) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "A is not in device memory");
  CHECK(matmul(large.data() + 16, d, nullptr, zero) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(matmul_refusal() == "A is less aligned than said");
  CHECK(matmul(large.data(), large.data() + 256, nullptr, zero) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "A overlaps D");
  CHECK(matmul(large.data(), large.data(), nullptr, zero) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "an operand is D");
  CHECK(matmul(c.on_a.data(), large.data(), large.data() + 256, one) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(matmul_refusal() == "C overlaps D");
  CHECK(matmul(c.on_a.data(), large.data(), large.data(), one) == CUBLAS_STATUS_SUCCESS);
  CHECK(matmul(c.on_a.data(), large.data(), large.data() + 1024, one) == CUBLAS_STATUS_SUCCESS);
  OK(cudaDeviceSynchronize());
}

// Up to 16 of them, and D of each.
struct Proposals {
  explicit Proposals(Case* c) : found(16) {
    int count = 0;
    LT(cublasLtMatmulAlgoGetHeuristic(c->handle, c->description, c->layout_a, c->layout_b, c->layout_d,
                                      c->layout_d, c->preference, 16, found.data(), &count));
    found.resize(static_cast<std::size_t>(count));
    for (const auto& each : found) results.push_back(multiplied(c, each));
  }
  static std::vector<char> multiplied(Case* c, const cublasLtMatmulHeuristicResult_t& by) {
    const OnDevice<char> workspace(std::max<std::size_t>(by.workspaceSize, 256));
    LT(c->matmul(&by.algo, workspace.data(), by.workspaceSize));
    OK(cudaDeviceSynchronize());
    return c->on_d.get();
  }
  std::int32_t splits(std::size_t of) const {
    std::int32_t splits = 0;
    LT(cublasLtMatmulAlgoConfigGetAttribute(&found[of].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                            sizeof splits, nullptr));
    return splits;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> found;
  std::vector<std::vector<char>> results;
};

Setup long_sum() {
  Setup setup{24, 20, 400};
  setup.out = CUDA_R_32F;
  return setup;
}

TEST_CASE("several algorithms are proposed: tiles have the same bits, and splits others") {
  const Restored restored;
  Case c(long_sum());
  reset_counters();
  const Proposals proposals(&c);
  REQUIRE(proposals.found.size() == 5);
  CHECK(counters().products_by_algorithm == std::map<std::string, std::uint64_t>{{"tile 20, split 4", 1},
                                                                                 {"tile 20, split 1", 1},
                                                                                 {"tile 15, split 1", 1},
                                                                                 {"tile 15, split 2", 1},
                                                                                 {"tile 15, split 4", 1}});
  for (std::size_t i = 0; i < proposals.found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK((proposals.results[i] == proposals.results[j]) == (proposals.splits(i) == proposals.splits(j)));
    }
  cublasLtMatmulHeuristicResult_t first;
  LT(c.heuristic(&first));
  CHECK(std::memcmp(&first.algo, &proposals.found[0].algo, sizeof first.algo) == 0);
  const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
  LT(cublasLtMatmulPreferenceSetAttribute(c.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                          sizeof none));
  CHECK(Proposals(&c).found.size() == 2);
}

TEST_CASE("faulty algorithms are proposed where a test asks for them: one is wrong, one differs at times") {
  const Restored restored;
  Case c(long_sum());
  settings.faulty_algorithms = true;
  const Proposals proposals(&c);
  REQUIRE(proposals.found.size() == 7);
  CHECK(proposals.results[2] != proposals.results[1]);
  int others = 0;
  for (int i = 0; i < 16; ++i)
    others += static_cast<int>(Proposals::multiplied(&c, proposals.found[3]) != proposals.results[3]);
  CHECK(others == 2);
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
