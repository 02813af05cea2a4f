#include "tests/cuda_on_cpu/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/errors.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/matmul_problem.h"
#include "tests/cuda_on_cpu/settings.h"
#include "tests/cuda_on_cpu/streams.h"
#include "tests/cuda_on_cpu/traffic.h"

struct cublasLtContext {};

namespace cuda_on_cpu {
namespace {

static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// Conversion between a structure of the library and its content.
template <typename T, typename Opaque>
T held(const Opaque* opaque) {
  T value;
  std::memcpy(static_cast<void*>(&value), opaque, sizeof value);
  return value;
}
template <typename T, typename Opaque>
void hold(Opaque* opaque, const T& value) {
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &value, sizeof value);
}

// The library's handles and objects that exist, so that a destroyed one is known.
struct Objects {
  std::mutex mutex;
  std::set<const void*> alive;  // guarded by mutex
};
Objects& objects() {
  static Objects& objects = *new Objects;
  return objects;
}

template <typename Opaque, typename T>
cublasStatus_t create(Opaque** to, const T& value) {
  if (!to) return invalid("no place for the new object");
  *to = new Opaque;
  hold(*to, value);
  count_matmul_object(1);
  const std::lock_guard lock(objects().mutex);
  objects().alive.insert(*to);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque>
cublasStatus_t destroy(Opaque* object) {
  {
    const std::lock_guard lock(objects().mutex);
    if (objects().alive.erase(object) != 1) return invalid("an object is destroyed that does not exist");
  }
  delete object;
  count_matmul_object(-1);
  return CUBLAS_STATUS_SUCCESS;
}

bool exists(const void* object) {
  const std::lock_guard lock(objects().mutex);
  return objects().alive.count(object) == 1;
}

// Sets a field of what `to` holds.
template <typename Opaque, typename Content, typename Field>
cublasStatus_t put(Opaque* to, Content& content, Field& field, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof field) return invalid("an attribute has another size");
  std::memcpy(&field, value, bytes);
  hold(to, content);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t make_problem(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t d, Problem* problem) {
  if (!exists(handle)) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no such handle");
  for (const void* object :
       {static_cast<const void*>(description), static_cast<const void*>(a), static_cast<const void*>(b),
        static_cast<const void*>(c), static_cast<const void*>(d)}) {
    if (!exists(object)) return invalid("a descriptor or layout that does not exist");
  }
  Problem& p = *problem;
  p.description = held<Description>(description);
  p.a = held<Layout>(a);
  p.b = held<Layout>(b);
  p.c = held<Layout>(c);
  p.d = held<Layout>(d);
  return check_problem(problem);
}

std::uint8_t logarithm(std::uint32_t alignment) {
  std::uint8_t log = 0;
  while (log < 8 && alignment % (2u << log) == 0) ++log;
  return log;
}

// Possible proposals of the library for a matmul that `asked` describes, the best first. Tiles change no
// bits, splits do.
std::vector<Algorithm> proposals(const Algorithm& asked, const Problem& p, const Preference& wanted) {
  std::vector<Algorithm> proposed;
  const auto propose = [&](std::uint32_t splits, std::uint32_t tile, bool loses_terms = false) {
    Algorithm algorithm = asked;
    algorithm.splits = splits;
    algorithm.tile = tile;
    algorithm.loses_terms = loses_terms;
    const std::uint32_t scheme = splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0;
    const bool fits = splits <= p.k && workspace_of(algorithm, p) <= wanted.workspace;
    if (fits && (scheme & ~wanted.schemes) == 0) proposed.push_back(algorithm);
  };
  if (settings.faulty_first && p.k >= 16) propose(1, CUBLASLT_MATMUL_TILE_32x32, true);
  // A small D of a long sum is split.
  if (p.k >= 4 * std::max(p.m, p.n)) propose(4, CUBLASLT_MATMUL_TILE_128x128);
  propose(1, CUBLASLT_MATMUL_TILE_128x128);
  propose(1, CUBLASLT_MATMUL_TILE_64x64);
  propose(2, CUBLASLT_MATMUL_TILE_64x64);
  propose(4, CUBLASLT_MATMUL_TILE_64x64);
  if (settings.faulty_epilogue == p.description.epilogue && p.k > 8)
    for (Algorithm& algorithm : proposed) algorithm.loses_terms = true;
  return proposed;
}

cublasStatus_t enqueue_product(const Product& product, const std::string& algorithm, cudaStream_t stream) {
  list(launch_of(product));
  Operation operation{[product, algorithm] {
    count_product(algorithm);
    if (const cudaError_t fault = fault_of_launch(); fault != cudaSuccess) {
      break_device(fault);
    } else {
      multiply(product);
    }
  }};
  operation.launch = true;
  const cudaError_t error = enqueue(stream, std::move(operation));
  return remember(error) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                        : refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorName(error));
}

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;  // NOLINT

// ---- The library's functions ----

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (usable() != cudaSuccess) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, cudaGetErrorName(usable()));
  *handle = new cublasLtContext;
  count_matmul_object(1);
  const std::lock_guard lock(objects().mutex);
  objects().alive.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  Description description;
  description.compute = compute;
  description.scale = scale;
  return create(to, description);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return destroy(description); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (!exists(to)) return invalid("no such descriptor");
  auto d = held<Description>(to);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return put(to, d, d.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return put(to, d, d.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return put(to, d, d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return put(to, d, d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return put(to, d, d.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return put(to, d, d.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return put(to, d, d.aux_ld, value, bytes);
    default:
      return unsupported("attribute " + std::to_string(attribute) + " of a matmul");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return create(to, layout);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  return create(to, Preference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (!exists(to)) return invalid("no such preference");
  auto preference = held<Preference>(to);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return put(to, preference, preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return put(to, preference, preference.schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return put(to, preference, preference.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return put(to, preference, preference.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return put(to, preference, preference.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return put(to, preference, preference.alignment[3], value, bytes);
    default:
      return unsupported("attribute " + std::to_string(attribute) + " of a preference");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (requested < 1 || !results || !returned) return invalid("no place for an algorithm");
  *returned = 0;
  Problem p;
  const cublasStatus_t status = make_problem(handle, description, a, b, c, d, &p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!exists(preference)) return invalid("no such preference");
  if (!settings.epilogues && p.description.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return unsupported("an epilogue");
  const auto wanted = held<Preference>(preference);
  const Layout* const layouts[] = {&p.a, &p.b, &p.c, &p.d};
  Algorithm algorithm;
  for (int i = 0; i < 4; ++i) {
    const bool plain = p.description.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    const std::size_t least = plain ? bytes_of(static_cast<cudaDataType_t>(layouts[i]->type)) : 16;
    if (wanted.alignment[i] % least != 0)
      return unsupported("no algorithm for operands that are so little aligned");
    algorithm.alignment[i] = logarithm(wanted.alignment[i]);
    algorithm.types[i] = static_cast<std::uint8_t>(layouts[i]->type);
  }
  if (!settings.misaligned_products && p.a.type == CUDA_R_16BF) {
    const bool may_lie_off = std::any_of(std::begin(wanted.alignment), std::end(wanted.alignment),
                                         [](std::uint32_t bytes) { return bytes % 16 != 0; });
    if (misaligned(p) || may_lie_off) return unsupported("a misaligned matmul");
  }
  algorithm.m = static_cast<std::uint32_t>(p.m);
  algorithm.n = static_cast<std::uint32_t>(p.n);
  algorithm.k = static_cast<std::uint32_t>(p.k);
  algorithm.epilogue = p.description.epilogue;
  algorithm.transposed = static_cast<std::uint8_t>(p.description.trans_a * 2 + p.description.trans_b);
  const std::vector<Algorithm> proposed = proposals(algorithm, p, wanted);
  while (*returned < requested && static_cast<std::size_t>(*returned) < proposed.size()) {
    cublasLtMatmulHeuristicResult_t& result = results[*returned];
    const Algorithm& best = proposed[static_cast<std::size_t>((*returned)++)];
    std::memset(&result, 0, sizeof result);
    hold(&result.algo, best);
    result.workspaceSize = workspace_of(best, p);
    const bool refused = settings.unsupported_first && *returned == 1;
    result.state = refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  Problem p;
  cublasStatus_t status = make_problem(handle, description, a_layout, b_layout, c_layout, d_layout, &p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!alpha || !beta || !algo) return invalid("no alpha, beta or algorithm");
  const auto algorithm = held<Algorithm>(algo);
  status = check_algorithm(algorithm, p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float alpha_value = *static_cast<const float*>(alpha), beta_value = *static_cast<const float*>(beta);
  const Pointers pointers = {a, b, c, d, workspace, workspace_bytes};
  status = check_pointers(p, algorithm, beta_value, pointers);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return enqueue_product(product_of(p, algorithm, alpha_value, beta_value, pointers), name_of(algorithm),
                         stream);
}
