#include "tests/bench/multiplication.h"

#include <cuda_bf16.h>

#include <sstream>
#include <utility>

#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/columns.h"
#include "worker/device/cuda/kernels/trial.h"

namespace dtrun::worker::cuda {
namespace {

constexpr std::string_view kEpilogues[] = {"none",          "bias",     "bias-relu",  "bias-gelu",
                                           "gelu-gradient", "row-sums", "column-sums"};

bool writes_bias(const MatmulShape& shape) {
  return shape.epilogue == Epilogue::kRowSums || shape.epilogue == Epilogue::kColumnSums;
}

}  // namespace

std::string title_of(const MatmulShape& s) {
  std::ostringstream title;
  title << s.m << ' ' << s.n << ' ' << s.k << ' ' << s.a_stride << (s.a_transposed ? "t" : "") << ' '
        << s.b_stride << (s.b_transposed ? "t" : "") << ' ' << s.c_stride << (s.add ? "+" : "") << ' '
        << (!s.bf16  ? "fp32"
            : s.wide ? "bf16>fp32"
                     : "bf16")
        << ' ' << kEpilogues[static_cast<std::size_t>(s.epilogue)] << ' ' << s.a_alignment << '/'
        << s.b_alignment << '/' << s.c_alignment << '/' << s.bias_alignment;
  return title.str();
}

MatmulShape without_sums(MatmulShape shape) {
  if (writes_bias(shape))
    shape.epilogue = Epilogue::kNone, shape.bias_alignment = MatmulShape().bias_alignment;
  return shape;
}

Multiplication::Multiplication(const MatmulShape& shape, CudaArithmetic& arithmetic, CudaStream& stream,
                               int kept)
    : shape_(shape), bytes_(bytes_of(shape)), stream_(stream), trial_(arithmetic, stream, nullptr, 0) {
  a_ = allocate(arithmetic, bytes_.a, shape.a_alignment);
  b_ = allocate(arithmetic, bytes_.b, shape.b_alignment);
  c_ = allocate(arithmetic, bytes_.c, shape.c_alignment);
  bias_ = allocate(arithmetic, bytes_.bias, shape.bias_alignment);
  aux_ = allocate(arithmetic, bytes_.aux, Cut::kAlignment);
  apart_ = arithmetic.try_allocate_bytes(2 * sizeof(float));
  made_ &= static_cast<bool>(apart_);
  results_.push_back({"the matmul", c_, bytes_.c});
  const std::size_t sums = static_cast<std::size_t>(shape.epilogue == Epilogue::kRowSums ? shape.m : shape.n);
  if (writes_bias(shape)) results_.push_back({"its sums", bias_, sums * (narrow(shape) ? 2 : 4)});
  if (shape.epilogue == Epilogue::kBiasGelu) results_.push_back({"what GELU gets", aux_, bytes_.aux});
  for (Result& result : results_)
    for (int i = 0; i < kept; ++i) {
      result.kept.push_back(arithmetic.try_allocate_bytes(result.bytes));
      made_ &= static_cast<bool>(result.kept.back());
    }
}

std::byte* Multiplication::allocate(CudaArithmetic& arithmetic, std::size_t bytes, int alignment) {
  Buffer memory = arithmetic.try_allocate_bytes(bytes + Cut::kAlignment);
  if (!memory) {
    made_ = false;
    return nullptr;
  }
  const std::size_t offset = static_cast<std::size_t>(alignment) % Cut::kAlignment;
  memory_.push_back(std::move(memory));
  return reinterpret_cast<std::byte*>(memory_.back().data()) + offset;
}

void Multiplication::fill() {
  scatter_as(shape_.bf16, a_, bytes_.a, 1, 1);
  scatter_as(shape_.bf16, b_, bytes_.b, 2, 1);
  fill_results();
}

void Multiplication::fill_results() {
  scatter_as(narrow(shape_), c_, bytes_.c, 3, 1);
  scatter_as(narrow(shape_), bias_, bytes_.bias, 4, 1);
  scatter_as(narrow(shape_), aux_, bytes_.aux, 5, 3);
}

void Multiplication::enqueue(Matmuls& matmuls, void* workspace, cudaStream_t on) {
  matmuls.multiply(shape_, {.a = a_, .b = b_, .c = c_, .bias = bias_, .aux = aux_}, workspace, on);
}

void Multiplication::enqueue_apart(Matmuls& matmuls, void* workspace, cudaStream_t on) {
  if (!writes_bias(shape_)) return enqueue(matmuls, workspace, on);
  matmuls.multiply(without_sums(shape_), {.a = a_, .b = b_, .c = c_, .bias = nullptr, .aux = nullptr},
                   workspace, on);
  if (shape_.bf16)
    sum_as<__nv_bfloat16>(workspace, on);
  else
    sum_as<float>(workspace, on);
  check_launch("sum_rows");
}

// Both operands lie in memory as rows of k.
template <typename T>
void Multiplication::sum_as(void* workspace, cudaStream_t on) {
  const bool left = shape_.epilogue == Epilogue::kRowSums;
  sum_rows(on, static_cast<std::size_t>(shape_.k), static_cast<std::size_t>(left ? shape_.m : shape_.n),
           static_cast<std::size_t>(left ? shape_.a_stride : shape_.b_stride),
           reinterpret_cast<const T*>(left ? a_ : b_), false, reinterpret_cast<float*>(bias_),
           static_cast<float*>(workspace));
}

void Multiplication::keep(int place) {
  for (const Result& result : results_)
    check(cudaMemcpyAsync(result.kept.at(static_cast<std::size_t>(place)).data(), result.data, result.bytes,
                          cudaMemcpyDeviceToDevice, stream_.handle()),
          "copying");
}

std::string Multiplication::difference(int place) {
  for (const Result& result : results_) {
    const float* const kept = result.kept.at(static_cast<std::size_t>(place)).data();
    const std::string words =
        narrow(shape_) ? difference_as<__nv_bfloat16>(result, kept) : difference_as<float>(result, kept);
    if (!words.empty()) return words;
  }
  return "";
}

void Multiplication::add_to(BitHash& hash) const {
  for (const Result& result : results_) hash.add(result.data, result.bytes);
}

void Multiplication::scatter_as(bool bf16, std::byte* to, std::size_t bytes, unsigned seed, float largest) {
  if (bf16)
    scatter(stream_.handle(), bytes / sizeof(__nv_bfloat16), seed, largest,
            reinterpret_cast<__nv_bfloat16*>(to));
  else
    scatter(stream_.handle(), bytes / sizeof(float), seed, largest, reinterpret_cast<float*>(to));
  check_launch("scatter");
}

template <typename T>
std::string Multiplication::difference_as(const Result& result, const float* kept) {
  return trial_.difference(result.name, result.bytes / sizeof(T), reinterpret_cast<const T*>(kept),
                           reinterpret_cast<const T*>(result.data), 0, apart_.data());
}

}  // namespace dtrun::worker::cuda
