#include "tests/cuda_on_cpu/matmul_problem.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/memory.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kTermsLost = 8;  // where an algorithm loses some

thread_local std::string refusal;

// Whether an epilogue reads or writes through the bias pointer.
bool reads_bias(std::uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool writes_bias(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool uses_aux(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool is_known_type(std::uint32_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }

bool is_known_epilogue(std::uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
    default:
      return false;
  }
}

cublasStatus_t check_layout(const Layout& layout, const char* name) {
  if (layout.rows == 0 || layout.cols == 0) return invalid(std::string("an empty matrix ") + name);
  if (layout.ld < static_cast<std::int64_t>(layout.rows)) {
    return invalid(std::string("columns overlap in ") + name);
  }
  if (!is_known_type(layout.type)) return unsupported(std::string("the type of ") + name);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_epilogue(const Problem& p) {
  const Description& d = p.description;
  if (!is_known_epilogue(d.epilogue)) return unsupported("epilogue " + std::to_string(d.epilogue));
  if ((reads_bias(d.epilogue) || writes_bias(d.epilogue)) && p.bias_type() != p.d.type) {
    return unsupported("a bias, or its gradient, of another type than D");
  }
  // Nowhere documented; tests of nvmath-python say so, and so do the libraries that use these two.
  if (d.epilogue == CUBLASLT_EPILOGUE_BGRADA && d.trans_a != CUBLAS_OP_N)
    return unsupported("the sums of a transposed A");
  if (d.epilogue == CUBLASLT_EPILOGUE_BGRADB && d.trans_b != CUBLAS_OP_T)
    return unsupported("the sums of a B that is not transposed");
  if (!uses_aux(d.epilogue)) return CUBLAS_STATUS_SUCCESS;
  if (reinterpret_cast<std::uintptr_t>(d.aux) % 16 != 0)
    return unsupported("an auxiliary matrix that is less aligned than 16 bytes");
  if (d.aux_ld < static_cast<std::int64_t>(p.m)) return invalid("columns of the auxiliary matrix overlap");
  if (d.aux_ld % 8 != 0) return unsupported("the auxiliary leading dimension is no multiple of 8");
  return CUBLAS_STATUS_SUCCESS;
}

// The last byte that a matrix has, as bytes from its first.
std::size_t extent(const Layout& layout) {
  return ((layout.cols - 1) * static_cast<std::size_t>(layout.ld) + layout.rows) *
         bytes_of(static_cast<cudaDataType_t>(layout.type));
}

cublasStatus_t check_memory(const void* data, std::size_t bytes, std::size_t alignment,
                            const std::string& name) {
  if (!data) return invalid(name + " is null");
  if (memory_of(data) != Memory::kDevice) return invalid(name + " is not in device memory");
  if (!is_allocated(data, bytes)) return invalid(name + " does not lie in one allocation");
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    return unsupported(name + " is less aligned than said");
  return CUBLAS_STATUS_SUCCESS;
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const char *const p = static_cast<const char*>(a), *const q = static_cast<const char*>(b);
  return p < q + b_bytes && q < p + a_bytes;
}

Matrix matrix_of(const void* data, const Layout& layout) {
  return {data, static_cast<cudaDataType_t>(layout.type), static_cast<std::size_t>(layout.ld)};
}

}  // namespace

std::string matmul_refusal() { return refusal; }

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  refusal = why;
  return status;
}
cublasStatus_t invalid(const std::string& why) { return refuse(CUBLAS_STATUS_INVALID_VALUE, why); }
cublasStatus_t unsupported(const std::string& why) { return refuse(CUBLAS_STATUS_NOT_SUPPORTED, why); }

std::string name_of(const Algorithm& algorithm) {
  return "tile " + std::to_string(algorithm.tile) + ", split " + std::to_string(algorithm.splits);
}
// As if in parts of k: each has its own D in fp32.
std::size_t workspace_of(const Algorithm& algorithm, const Problem& p) {
  if (algorithm.splits <= 1) return 0;
  return algorithm.splits * p.m * p.n * sizeof(float);
}

cublasStatus_t check_problem(Problem* problem) {
  Problem& p = *problem;
  if (p.description.kind != Kind::kDescription) return invalid("a descriptor of something else");
  const std::pair<const Layout*, const char*> layouts[] = {
      {&p.a, "A"}, {&p.b, "B"}, {&p.c, "C"}, {&p.d, "D"}};
  for (const auto& [layout, name] : layouts) {
    if (layout->kind != Kind::kLayout) return invalid("a layout of something else");
    if (const cublasStatus_t status = check_layout(*layout, name); status != CUBLAS_STATUS_SUCCESS)
      return status;
  }
  const Description& t = p.description;
  for (const std::int32_t trans : {t.trans_a, t.trans_b}) {
    if (trans != CUBLAS_OP_N && trans != CUBLAS_OP_T) return unsupported("an operation other than N and T");
  }
  if (t.compute != CUBLAS_COMPUTE_32F || t.scale != CUDA_R_32F)
    return unsupported("a compute type other than fp32");
  if (p.a.type != p.b.type) return unsupported("A and B of different types");
  if (p.c.type != p.d.type) return unsupported("C and D of different types");
  if (p.a.type == CUDA_R_32F && p.d.type != CUDA_R_32F) return unsupported("a bf16 D of fp32 A and B");
  const bool plain_a = t.trans_a == CUBLAS_OP_N, plain_b = t.trans_b == CUBLAS_OP_N;
  p.m = p.d.rows;
  p.n = p.d.cols;
  p.k = plain_a ? p.a.cols : p.a.rows;
  if ((plain_a ? p.a.rows : p.a.cols) != p.m || (plain_b ? p.b.cols : p.b.rows) != p.n ||
      (plain_b ? p.b.rows : p.b.cols) != p.k || p.c.rows != p.m || p.c.cols != p.n) {
    return invalid("shapes of A, B, C and D do not fit together");
  }
  return check_epilogue(p);
}

bool misaligned(const Problem& p) {
  const auto off = [](std::uint64_t elements, const Layout& layout) {
    return elements * bytes_of(static_cast<cudaDataType_t>(layout.type)) % 16 != 0;
  };
  const auto ld = [](const Layout& layout) { return static_cast<std::uint64_t>(layout.ld); };
  return off(p.description.trans_a == CUBLAS_OP_N ? p.m : p.k, p.a) || off(ld(p.a), p.a) ||
         off(p.description.trans_b == CUBLAS_OP_N ? p.k : p.n, p.b) || off(ld(p.b), p.b) || off(p.m, p.c) ||
         off(ld(p.c), p.c);
}

cublasStatus_t check_algorithm(const Algorithm& algorithm, const Problem& p) {
  const Description& t = p.description;
  const std::uint32_t types[] = {p.a.type, p.b.type, p.c.type, p.d.type};
  const bool same = algorithm.m == p.m && algorithm.n == p.n && algorithm.k == p.k &&
                    algorithm.epilogue == t.epilogue && algorithm.transposed == t.trans_a * 2 + t.trans_b &&
                    std::equal(std::begin(types), std::end(types), algorithm.types);
  return same ? CUBLAS_STATUS_SUCCESS : invalid("an algorithm that was found for another matmul");
}

cublasStatus_t check_pointers(const Problem& p, const Algorithm& algorithm, float beta, const Pointers& o) {
  struct Checked {
    const void* data;
    std::size_t bytes, alignment;
    const char* name;
  };
  const auto alignment = [&](int i, const Layout& layout) {
    return std::max<std::size_t>(std::size_t{1} << algorithm.alignment[i],
                                 bytes_of(static_cast<cudaDataType_t>(layout.type)));
  };
  std::vector<Checked> all = {{o.a, extent(p.a), alignment(0, p.a), "A"},
                              {o.b, extent(p.b), alignment(1, p.b), "B"},
                              {o.d, extent(p.d), alignment(3, p.d), "D"}};
  if (beta != 0) all.push_back({o.c, extent(p.c), alignment(2, p.c), "C"});
  const Description& t = p.description;
  const std::size_t bias_length = t.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
  const std::size_t bias_bytes = bytes_of(static_cast<cudaDataType_t>(p.bias_type()));
  if (reads_bias(t.epilogue) || writes_bias(t.epilogue)) {
    all.push_back({t.bias, bias_length * bias_bytes, bias_bytes, "the bias"});
  }
  if (uses_aux(t.epilogue)) {
    const std::size_t elements = (p.n - 1) * static_cast<std::size_t>(t.aux_ld) + p.m;
    all.push_back(
        {t.aux, elements * bytes_of(static_cast<cudaDataType_t>(p.d.type)), 16, "the auxiliary matrix"});
  }
  const std::size_t workspace = workspace_of(algorithm, p);
  if (workspace > o.workspace_bytes) return invalid("less workspace than the algorithm needs");
  if (o.workspace_bytes > 0) {
    if (reinterpret_cast<std::uintptr_t>(o.workspace) % 256 != 0)
      return invalid("workspace not aligned to 256 bytes");
    all.push_back({o.workspace, o.workspace_bytes, 256, "the workspace"});
  }
  for (const Checked& one : all) {
    const cublasStatus_t status = check_memory(one.data, one.bytes, one.alignment, one.name);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const bool is_c = one.data == o.c && std::strcmp(one.name, "C") == 0;
    if (one.data != o.d && !is_c && overlap(one.data, one.bytes, o.d, extent(p.d))) {
      return invalid(std::string(one.name) + " overlaps D");
    }
  }
  if (o.a == o.d || o.b == o.d) return invalid("an operand is D");
  if (beta != 0) {
    if (o.c == o.d ? p.c.ld != p.d.ld : overlap(o.c, extent(p.c), o.d, extent(p.d)))
      return invalid("C overlaps D");
  }
  return CUBLAS_STATUS_SUCCESS;
}

Product product_of(const Problem& p, const Algorithm& algorithm, float alpha, float beta, const Pointers& o) {
  const Description& t = p.description;
  Product product;
  product.m = p.m;
  product.n = p.n;
  product.k = p.k;
  product.transposed_a = t.trans_a == CUBLAS_OP_T;
  product.transposed_b = t.trans_b == CUBLAS_OP_T;
  product.alpha = alpha;
  product.beta = beta;
  product.a = matrix_of(o.a, p.a);
  product.b = matrix_of(o.b, p.b);
  product.c = matrix_of(o.c, p.c);
  product.d = matrix_of(o.d, p.d);
  product.epilogue = static_cast<cublasLtEpilogue_t>(t.epilogue);
  product.bias = t.bias;
  product.bias_type = static_cast<cudaDataType_t>(p.bias_type());
  if (uses_aux(t.epilogue)) {
    product.aux = {t.aux, static_cast<cudaDataType_t>(p.d.type), static_cast<std::size_t>(t.aux_ld)};
  }
  product.splits = algorithm.splits;
  product.lost_terms = algorithm.loses_terms ? kTermsLost : 0;
  product.workspace = o.workspace;
  product.workspace_bytes = workspace_of(algorithm, p);
  return product;
}

Launch launch_of(const Product& p) {
  const auto bytes = [](const Matrix& matrix, std::size_t columns) {
    return matrix.ld * columns * bytes_of(matrix.type);
  };
  Launch launch{.name = "matmul",
                .flops = 2 * static_cast<double>(p.m * p.n * p.k),
                .read = bytes(p.a, p.transposed_a ? p.m : p.k) + bytes(p.b, p.transposed_b ? p.k : p.n),
                .written = bytes(p.d, p.n)};
  if (p.beta != 0) launch.read += bytes(p.c, p.n);
  if (reads_bias(p.epilogue)) launch.read += p.m * bytes_of(p.bias_type);
  if (writes_bias(p.epilogue))
    launch.written += (p.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m) * bytes_of(p.bias_type);
  if (uses_aux(p.epilogue))
    (p.epilogue == CUBLASLT_EPILOGUE_DGELU ? launch.read : launch.written) += bytes(p.aux, p.n);
  return launch;
}

}  // namespace cuda_on_cpu
