#include "worker/device/cuda/matmul/matmul_check.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "proto/base/log.h"
#include "proto/core/exit_codes.h"
#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"

namespace dtrun::worker::cuda {
namespace {

// Elements of a matrix as in memory.
using Bytes = std::vector<std::byte>;

void append(Bytes& to, std::size_t count, float value, bool bf16) {
  std::byte element[sizeof(float)];
  const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
  std::memcpy(element, bf16 ? static_cast<const void*>(&rounded) : &value, bf16 ? 2 : 4);
  for (std::size_t i = 0; i < count; ++i) to.insert(to.end(), element, element + (bf16 ? 2 : 4));
}

std::vector<float> read(const Bytes& from, bool bf16) {
  std::vector<float> values(from.size() / (bf16 ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (bf16) {
      __nv_bfloat16 value;
      std::memcpy(&value, &from[2 * i], 2);
      values[i] = __bfloat162float(value);
    } else {
      std::memcpy(&values[i], &from[4 * i], 4);
    }
  }
  return values;
}

// One matmul of ones. If a lost term would be a small part of the sum, and the sum is rounded to bf16 or goes
// through GELU's slope, only the first and last kEnd terms are 1 and the others 0: bf16 has every whole
// number up to 256.
class OnesProduct {
 public:
  OnesProduct(const MatmulShape& shape, CudaStream& stream)
      : s_(shape),
        stream_(stream),
        bytes_(bytes_of(shape)),
        narrow_(narrow(shape)),
        few_(narrow_ || shape.epilogue == Epilogue::kGeluGradient) {}

  // Bytes of device memory.
  std::size_t bytes() const {
    return bytes_.a + bytes_.b + bytes_.c + bytes_.bias + bytes_.aux + 5 * Cut::kAlignment;
  }

  // `memory`: bytes() bytes.
  void multiply(Matmuls& matmuls, Cut memory, void* workspace) {
    auto* const a = memory.next<std::byte>(bytes_.a);
    auto* const b = memory.next<std::byte>(bytes_.b);
    c_ = memory.next<std::byte>(bytes_.c);
    bias_ = memory.next<std::byte>(bytes_.bias);
    aux_ = memory.next<std::byte>(bytes_.aux);
    Bytes a_row, b_row, aux_row;
    if (s_.a_transposed)
      append(a_row, count(s_.a_stride), 1, s_.bf16);
    else
      for (std::size_t k = 0; k < count(s_.a_stride); ++k) append(a_row, 1, counts(k) ? 1 : 0, s_.bf16);
    append(b_row, count(s_.b_stride), 1, s_.bf16);
    // GELU's slope at 20 is 1.
    append(aux_row, count(s_.c_stride), 20, narrow_);
    fill(a, a_row, bytes_.a / a_row.size());
    if (s_.a_transposed && few_ && count(s_.k) > 2 * kEnd)
      clear(a + kEnd * a_row.size(), (count(s_.k) - 2 * kEnd) * a_row.size());
    fill(b, b_row, bytes_.b / b_row.size());
    clear(c_, bytes_.c);
    clear(bias_, bytes_.bias);
    if (has_aux(s_)) fill(aux_, aux_row, count(s_.m));
    matmuls.multiply(s_, {.a = a, .b = b, .c = c_, .bias = bias_, .aux = aux_}, workspace, stream_.handle());
  }

  // "", or the fault.
  std::string fault() const {
    const bool gelu = s_.epilogue == Epilogue::kBiasGelu;
    for (const std::int64_t row : {std::int64_t{0}, s_.m - 1}) {
      // GELU's input reveals more faults than its output.
      const std::string wrong = differing((gelu ? aux_ : c_) + count(row * s_.c_stride) * wide(), s_.n,
                                          terms(), s_.epilogue == Epilogue::kGeluGradient ? kSlope : 0);
      if (!wrong.empty()) return "row " + std::to_string(row) + ", " + wrong;
    }
    if (s_.epilogue == Epilogue::kRowSums)
      return within("the sums of rows", differing(bias_, s_.m, terms(), 0));
    if (s_.epilogue == Epilogue::kColumnSums)
      return within("the sums of columns", differing(bias_, s_.n, rounded(s_.k), 0));
    return "";
  }

 private:
  static constexpr std::size_t kEnd = 128;
  static constexpr float kSlope = 1.0f / 128;  // a GPU's tanh may be that far off

  std::size_t wide() const { return narrow_ ? 2 : 4; }

  static std::size_t count(std::int64_t n) { return static_cast<std::size_t>(n); }
  static std::string within(const char* what, const std::string& wrong) {
    return wrong.empty() ? "" : std::string(what) + ", " + wrong;
  }
  bool counts(std::size_t k) const { return !few_ || k < kEnd || k + kEnd >= count(s_.k); }
  float terms() const { return static_cast<float>(few_ ? std::min<std::int64_t>(s_.k, 2 * kEnd) : s_.k); }
  float rounded(std::int64_t number) const {
    const auto value = static_cast<float>(number);
    return narrow_ ? __bfloat162float(__float2bfloat16_rn(value)) : value;
  }

  // Fills by copying the rows filled so far, which is fast on a GPU and needs no kernel.
  void fill(std::byte* to, const Bytes& row, std::size_t rows) const {
    auto* const on = stream_.handle();
    check(cudaMemcpyAsync(to, row.data(), row.size(), cudaMemcpyHostToDevice, on), "copying");
    stream_.wait();
    for (std::size_t done = 1; done < rows;) {
      const std::size_t more = std::min(done, rows - done);
      check(cudaMemcpyAsync(to + done * row.size(), to, more * row.size(), cudaMemcpyDeviceToDevice, on),
            "copying");
      done += more;
    }
  }
  void clear(std::byte* to, std::size_t bytes) const {
    check(cudaMemsetAsync(to, 0, bytes, stream_.handle()), "clearing memory");
  }

  std::string differing(const std::byte* from, std::int64_t size, float wanted, float tolerance) const {
    Bytes there(count(size) * wide());
    check(cudaMemcpyAsync(there.data(), from, there.size(), cudaMemcpyDeviceToHost, stream_.handle()),
          "copying");
    stream_.wait();
    const std::vector<float> values = read(there, narrow_);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(values[i] - wanted) <= tolerance * wanted))
        return "element " + std::to_string(i) + " is " + std::to_string(values[i]) + ", not " +
               std::to_string(wanted);
    return "";
  }

  const MatmulShape s_;
  CudaStream& stream_;
  const OperandBytes bytes_;
  const bool narrow_;  // outputs are bf16
  const bool few_;     // only few terms are 1
  std::byte *c_ = nullptr, *bias_ = nullptr, *aux_ = nullptr;
};

std::string versions() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  return "cuBLASLt " + cublas_lt().version + " (" + cublas_lt().file + ") and a driver for CUDA " +
         std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
}

bool told_to_tell() {
  const char* const value = std::getenv("DTRUN_CUDA_MATMUL_CHECK");
  return value != nullptr && std::string(value) == "0";
}

}  // namespace

std::optional<std::string> fault_of(const MatmulShape& shape, Matmuls& matmuls, Trial& trial,
                                    void* workspace) {
  OnesProduct matmul(shape, trial.stream());
  const std::optional<Cut> memory = trial.memory(matmul.bytes());
  if (!memory) return {};
  matmul.multiply(matmuls, *memory, workspace);
  return matmul.fault();
}

MatmulCheck::MatmulCheck(Matmuls& matmuls, Trial& trial, void* workspace)
    : matmuls_(matmuls), trial_(trial), workspace_(workspace), only_tells_(told_to_tell()) {}

bool MatmulCheck::passes(const MatmulShape& shape) {
  const auto [known, is_new] = faults_.try_emplace(shape);
  if (is_new && matmuls_.can(shape) && workspace_ != nullptr) known->second = first_fault(shape);
  return matmuls_.can(shape);
}

// "" if the shape's current algorithm is right. Else the first fault; the shape then has another proposal, or
// no algorithm.
std::string MatmulCheck::first_fault(const MatmulShape& shape) {
  const auto fault = [&] { return fault_of(shape, matmuls_, trial_, workspace_).value_or(""); };
  std::string first = fault();
  if (first.empty()) return "";
  std::string then = "it is used all the same (DTRUN_CUDA_MATMUL_CHECK=0)";
  if (!only_tells_) {
    bool any = matmuls_.try_next(shape);
    while (any && !fault().empty()) any = matmuls_.try_next(shape);
    then = any ? "another one is used" : "and so are all that it proposes";
  }
  log_warn("an algorithm of " + versions() + " is wrong: of ones, " + name_of(shape) + ", " + first + "; " +
           then);
  return first;
}

void MatmulCheck::require(const std::map<MatmulShape, int>& matmuls) {
  for (const auto& [shape, times] : matmuls) {
    if (passes(shape)) continue;
    const std::string& fault = faults_.at(shape);
    if (fault.empty())
      throw WorkerError(kExitSoftware, "cuBLASLt has no algorithm for a matmul of " + name_of(shape));
    throw WorkerError(kExitConfig, "matrices are multiplied wrong by " + versions() +
                                       ", whatever algorithm it proposes: of ones, " + name_of(shape) + ", " +
                                       fault +
                                       "; install another version of cuBLASLt, or name its folder in "
                                       "DTRUN_CUDA_LIBRARY_PATH");
  }
}

}  // namespace dtrun::worker::cuda
