#include "worker/device/cuda/matmul/matmuls.h"

#include <array>
#include <string>

#include "proto/core/exit_codes.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

// Partial sums of a split matmul stay fp32: sums in c's own type would be rounded in between.
constexpr std::uint32_t kSchemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

void check_status(const CublasLt& library, cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw WorkerError(kExitOsError, std::string("cuBLASLt failed while ") + doing + ": " +
                                      library.get_status_string(status) + " (" +
                                      library.get_status_name(status) + ")");
}

// The library's matrices are column-major: rows here are columns there, so it computes c^T = b^T a^T.
cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kRowSums:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::kColumnSums:
      return CUBLASLT_EPILOGUE_BGRADA;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_bias(Epilogue epilogue) {
  return epilogue != Epilogue::kNone && epilogue != Epilogue::kGeluGradient;
}

}  // namespace

std::string name_of(const MatmulShape& shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k) +
         (shape.bf16 ? " in bf16" : " in fp32");
}

std::string platform_of(const cudaDeviceProp& gpu) {
  return std::string(gpu.name) + ", compute capability " + std::to_string(gpu.major) + "." +
         std::to_string(gpu.minor) + ", " + std::to_string(gpu.multiProcessorCount) + " SMs, cuBLASLt " +
         cublas_lt().version;
}

Matmuls::Matmuls() { check_status(library_, library_.create(&handle_), "starting"); }

Matmuls::~Matmuls() {
  for (auto& [shape, objects] : prepared_) {
    library_.matrix_layout_destroy(objects.left);
    library_.matrix_layout_destroy(objects.right);
    library_.matrix_layout_destroy(objects.out);
    library_.matmul_desc_destroy(objects.matmul);
  }
  library_.destroy(handle_);
}

Matmuls::Prepared& Matmuls::prepared(const MatmulShape& shape) {
  const auto found = prepared_.find(shape);
  if (found != prepared_.end()) return found->second;
  Prepared& objects = prepared_.emplace(shape, describe(shape)).first->second;
  choose_next(shape, objects);
  return objects;
}

void Matmuls::choose_next(const MatmulShape& shape, Prepared& objects) {
  if (!objects.next) objects.next = ask(shape, objects);
  objects.chosen.reset();
  if (objects.next->empty()) return;
  objects.chosen = objects.next->front();
  objects.next->pop_front();
}

bool Matmuls::try_next(const MatmulShape& shape) {
  Prepared& objects = prepared(shape);
  choose_next(shape, objects);
  return objects.chosen.has_value();
}

bool Matmuls::can(const MatmulShape& shape) { return prepared(shape).chosen.has_value(); }

std::size_t Matmuls::workspace(const MatmulShape& shape) {
  const Prepared& objects = prepared(shape);
  return objects.chosen ? objects.chosen->workspaceSize : 0;
}

Matmuls::Prepared Matmuls::describe(const MatmulShape& shape) {
  Prepared objects;
  const cudaDataType_t element = shape.bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t wide = narrow(shape) ? CUDA_R_16BF : CUDA_R_32F;
  check_status(library_, library_.matmul_desc_create(&objects.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a matmul");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_status(library_,
                 library_.matmul_desc_set_attribute(objects.matmul, attribute, &value, sizeof value),
                 "describing a matmul");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape.epilogue));
  if (has_bias(shape.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, wide);
  if (has_aux(shape)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.c_stride);

  // The library considers only the addresses' alignment when it chooses. multiply() gives the real addresses.
  const auto address = [](std::uintptr_t alignment) {
    return reinterpret_cast<const void*>(4096 + alignment);
  };
  if (has_bias(shape.epilogue))
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address(static_cast<std::uintptr_t>(shape.bias_alignment)));
  if (has_aux(shape)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address(256));

  const auto layout = [&](cublasLtMatrixLayout_t& of, cudaDataType_t type, std::int64_t rows,
                          std::int64_t columns, std::int64_t stride) {
    check_status(library_,
                 library_.matrix_layout_create(&of, type, static_cast<std::uint64_t>(rows),
                                               static_cast<std::uint64_t>(columns), stride),
                 "describing a matrix");
  };
  layout(objects.left, element, shape.b_transposed ? shape.k : shape.n,
         shape.b_transposed ? shape.n : shape.k, shape.b_stride);
  layout(objects.right, element, shape.a_transposed ? shape.m : shape.k,
         shape.a_transposed ? shape.k : shape.m, shape.a_stride);
  layout(objects.out, wide, shape.n, shape.m, shape.c_stride);
  return objects;
}

std::deque<cublasLtMatmulHeuristicResult_t> Matmuls::ask(const MatmulShape& shape, const Prepared& objects) {
  cublasLtMatmulPreference_t limits = nullptr;
  check_status(library_, library_.matmul_preference_create(&limits), "choosing an algorithm");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_status(library_, library_.matmul_preference_set_attribute(limits, attribute, &value, sizeof value),
                 "choosing an algorithm");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kLargestWorkspace});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kSchemes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(shape.b_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(shape.a_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(shape.c_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(shape.c_alignment));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposed{};
  int found = 0;
  const cublasStatus_t status =
      library_.matmul_algo_get_heuristic(handle_, objects.matmul, objects.left, objects.right, objects.out,
                                         objects.out, limits, kProposals, proposed.data(), &found);
  library_.matmul_preference_destroy(limits);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  std::deque<cublasLtMatmulHeuristicResult_t> usable(proposed.begin(), proposed.begin() + found);
  std::erase_if(usable, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
  return usable;
}

void Matmuls::multiply(const MatmulShape& shape, const Operands& operands, void* memory,
                       cudaStream_t stream) {
  Prepared& objects = prepared(shape);
  if (!objects.chosen)
    throw WorkerError(kExitSoftware, "cuBLASLt has no algorithm for a matmul of " + name_of(shape));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
    check_status(library_,
                 library_.matmul_desc_set_attribute(objects.matmul, attribute, &pointer, sizeof pointer),
                 "describing a matmul");
  };
  if (has_bias(shape.epilogue)) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (has_aux(shape)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  const float one = 1, beta = shape.add ? 1 : 0;
  check_status(library_,
               library_.matmul(handle_, objects.matmul, &one, operands.b, objects.left, operands.a,
                               objects.right, &beta, operands.c, objects.out, operands.c, objects.out,
                               &objects.chosen->algo, memory, objects.chosen->workspaceSize, stream),
               ("multiplying " + name_of(shape)).c_str());
}

}  // namespace dtrun::worker::cuda
