// cuBLASLt's stand-in: what it refuses, as the real library does.
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/matmul_case.h"
#include "tests/cuda_on_cpu/matmul_problem.h"

namespace {

using namespace cuda_on_cpu;

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

}  // namespace
