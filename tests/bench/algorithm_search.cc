#include "tests/bench/algorithm_search.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>
#include <utility>

#include "worker/base/error.h"
#include "worker/device/cuda/failure.h"
#include "worker/device/cuda/kernels/trial.h"
#include "worker/device/cuda/product_check.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kProposals = 16;
constexpr int kRepetitions = 24;
constexpr int kRounds = 7;
constexpr double kMicrosecondsOfARound = 1000;
constexpr int kMostTimes = 50;  // in a round
constexpr std::chrono::milliseconds kLongestWait{20};
// What is slower by less than this is not worth other bits.
constexpr double kHardly = 0.01;
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

template <typename T>
std::optional<T> attribute(const AlgorithmWords& words, cublasLtMatmulAlgoConfigAttributes_t name) {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(words);
  T value{};
  const cublasStatus_t status =
      cublas_lt().matmul_algo_config_get_attribute(&algorithm, name, &value, sizeof value, nullptr);
  return status == CUBLAS_STATUS_SUCCESS ? std::optional(value) : std::nullopt;
}

std::string text_of(const auto& value) { return value ? std::to_string(*value) : "?"; }

Candidate candidate_of(const AlgorithmWords& words) {
  Candidate candidate;
  candidate.words = words;
  candidate.split = attribute<std::int32_t>(words, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  candidate.name = "algorithm " + text_of(attribute<std::int32_t>(words, CUBLASLT_ALGO_CONFIG_ID)) +
                   ", tile " + text_of(attribute<std::uint32_t>(words, CUBLASLT_ALGO_CONFIG_TILE_ID)) +
                   ", stages " + text_of(attribute<std::uint32_t>(words, CUBLASLT_ALGO_CONFIG_STAGES_ID)) +
                   ", split " + text_of(candidate.split);
  return candidate;
}

bool writes_bias(const MatmulShape& shape) {
  return shape.epilogue == Epilogue::kRowSums || shape.epilogue == Epilogue::kColumnSums;
}

}  // namespace

// A product's operands, no better aligned than its shape says, and results of it that are kept.
class Multiplication {
 public:
  static constexpr int kKept = 2;

  // !made() if there is no room.
  Multiplication(const MatmulShape& shape, CudaArithmetic& arithmetic, CudaStream& stream)
      : shape_(shape), bytes_(bytes_of(shape)), stream_(stream), trial_(arithmetic, stream, nullptr, 0) {
    a_ = allocate(arithmetic, bytes_.a, shape.a_alignment);
    b_ = allocate(arithmetic, bytes_.b, shape.b_alignment);
    c_ = allocate(arithmetic, bytes_.c, shape.c_alignment);
    bias_ = allocate(arithmetic, bytes_.bias, shape.bias_alignment);
    aux_ = allocate(arithmetic, bytes_.aux, Cut::kAlignment);
    apart_ = arithmetic.try_allocate_bytes(2 * sizeof(float));
    results_.push_back({"the product", c_, bytes_.c, {}});
    if (writes_bias(shape)) results_.push_back({"its sums", bias_, bytes_.bias, {}});
    if (shape.epilogue == Epilogue::kBiasGelu) results_.push_back({"what GELU gets", aux_, bytes_.aux, {}});
    for (Result& result : results_)
      for (Buffer& kept : result.kept) kept = arithmetic.try_allocate_bytes(result.bytes);
  }

  bool made() const {
    const auto is_made = [](const Result& result) {
      return std::ranges::all_of(result.kept, [](const Buffer& kept) { return static_cast<bool>(kept); });
    };
    return a_ != nullptr && b_ != nullptr && c_ != nullptr && bias_ != nullptr && aux_ != nullptr && apart_ &&
           std::ranges::all_of(results_, is_made);
  }
  const MatmulShape& shape() const { return shape_; }

  // Numbers that are always the same. What the product does not write stays so.
  void fill() {
    scatter_as(shape_.bf16, a_, bytes_.a, 1, 1);
    scatter_as(shape_.bf16, b_, bytes_.b, 2, 1);
    fill_results();
  }
  void fill_results() {
    scatter_as(narrow(shape_), c_, bytes_.c, 3, 1);
    scatter_as(narrow(shape_), bias_, bytes_.bias, 4, 1);
    scatter_as(narrow(shape_), aux_, bytes_.aux, 5, 3);
  }
  void enqueue(Products& products, void* workspace) {
    products.multiply(shape_, {.a = a_, .b = b_, .c = c_, .bias = bias_, .aux = aux_}, workspace,
                      stream_.handle());
  }

  void keep(int place) {
    for (const Result& result : results_)
      check(cudaMemcpyAsync(result.kept.at(static_cast<std::size_t>(place)).data(), result.data, result.bytes,
                            cudaMemcpyDeviceToDevice, stream_.handle()),
            "copying");
  }
  // "" or how the result differs from what is kept. Zeros of both signs are alike.
  std::string difference(int place) {
    for (const Result& result : results_) {
      const float* const kept = result.kept.at(static_cast<std::size_t>(place)).data();
      const std::string words =
          narrow(shape_) ? difference_as<__nv_bfloat16>(result, kept) : difference_as<float>(result, kept);
      if (!words.empty()) return words;
    }
    return "";
  }

 private:
  struct Result {
    const char* name;
    std::byte* data;
    std::size_t bytes;
    std::array<Buffer, kKept> kept;
  };

  std::byte* allocate(CudaArithmetic& arithmetic, std::size_t bytes, int alignment) {
    Buffer memory = arithmetic.try_allocate_bytes(bytes + Cut::kAlignment);
    if (!memory) return nullptr;
    const std::size_t offset = static_cast<std::size_t>(alignment) % Cut::kAlignment;
    memory_.push_back(std::move(memory));
    return reinterpret_cast<std::byte*>(memory_.back().data()) + offset;
  }
  void scatter_as(bool bf16, std::byte* to, std::size_t bytes, unsigned seed, float largest) {
    if (bf16)
      scatter(stream_.handle(), bytes / sizeof(__nv_bfloat16), seed, largest,
              reinterpret_cast<__nv_bfloat16*>(to));
    else
      scatter(stream_.handle(), bytes / sizeof(float), seed, largest, reinterpret_cast<float*>(to));
    check_launch("scatter");
  }
  template <typename T>
  std::string difference_as(const Result& result, const float* kept) {
    return trial_.difference(result.name, result.bytes / sizeof(T), reinterpret_cast<const T*>(kept),
                             reinterpret_cast<const T*>(result.data), 0, apart_.data());
  }

  const MatmulShape shape_;
  const OperandBytes bytes_;
  CudaStream& stream_;
  Trial trial_;
  std::vector<Buffer> memory_;
  std::byte *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *bias_ = nullptr, *aux_ = nullptr;
  Buffer apart_;
  std::vector<Result> results_;
};

AlgorithmSearch::AlgorithmSearch(int gpu, Algorithms table, Timer timer)
    : arithmetic_(gpu),
      stream_(gpu),
      table_(std::move(table)),
      timer_(std::move(timer)),
      workspace_(arithmetic_.allocate_bytes(kWorkspace, "the work of products")) {}

double AlgorithmSearch::by_events(CudaStream& stream, int times, const std::function<void()>& enqueue) {
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "making an event");
  // Nothing runs until all is enqueued, or short products would be told apart by how fast the host is.
  static std::atomic<bool> enqueued;
  enqueued = false;
  const auto wait = [](void*) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point last = Clock::now() + kLongestWait;
    while (!enqueued && Clock::now() < last) std::this_thread::yield();
  };
  check(cudaLaunchHostFunc(stream.handle(), wait, nullptr), "enqueueing a host function");
  check(cudaEventRecord(events[0], stream.handle()), "recording an event");
  for (int i = 0; i < times; ++i) enqueue();
  check(cudaEventRecord(events[1], stream.handle()), "recording an event");
  enqueued = true;
  stream.wait();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, events[0], events[1]), "reading a time");
  for (cudaEvent_t const event : events) check(cudaEventDestroy(event), "destroying an event");
  return 1000.0 * static_cast<double>(milliseconds) / times;
}

std::vector<Candidate> AlgorithmSearch::candidates(const MatmulShape& shape) {
  std::vector<Candidate> found;
  const auto add = [&](const AlgorithmWords& words) -> Candidate& {
    const auto there = std::ranges::find(found, words, &Candidate::words);
    return there != found.end() ? *there : found.emplace_back(candidate_of(words));
  };
  for (const AlgorithmWords& words : products_.proposals(shape, 1)) add(words);
  if (const auto row = table_.find(shape); row != table_.end()) add(row->second).from_table = true;
  for (const AlgorithmWords& words : products_.proposals(shape, kProposals)) add(words);
  return found;
}

void AlgorithmSearch::find_wrong(const MatmulShape& shape, Search& search) {
  Trial trial(arithmetic_, stream_, nullptr, 0);
  for (Candidate& candidate : search.candidates) {
    const std::string refused = products_.use(shape, candidate.words);
    if (!refused.empty()) {
      candidate.fault = "refused: " + refused;
      continue;
    }
    try {
      const std::optional<std::string> fault = fault_of(shape, products_, trial, workspace_.data());
      if (!fault)
        search.skipped = "there is no room for it";
      else if (!fault->empty())
        candidate.fault = "wrong: of ones, " + *fault;
    } catch (const WorkerError& error) {
      candidate.fault = std::string("fails: ") + error.what();
    }
  }
}

void AlgorithmSearch::find_unsteady(Multiplication& product, Search& search) {
  constexpr int kFirst = 0, kUnsplit = 1;  // what is kept: a candidate's first result, and an unsplit one's
  for (Candidate& candidate : search.candidates) {
    if (!candidate.fault.empty()) continue;
    products_.use(product.shape(), candidate.words);
    for (int time = 0; time < kRepetitions && candidate.fault.empty(); ++time) {
      product.fill_results();
      product.enqueue(products_, workspace_.data());
      if (time == 0) {
        product.keep(kFirst);
        continue;
      }
      const std::string words = product.difference(kFirst);
      if (!words.empty()) candidate.fault = "other bits at repetition " + std::to_string(time) + ": " + words;
    }
    if (!candidate.fault.empty() || candidate.split != 1) continue;
    if (search.unsplit++ == 0) product.keep(kUnsplit);
    search.unsplit_alike += static_cast<int>(product.difference(kUnsplit).empty());
  }
}

void AlgorithmSearch::measure(Multiplication& product, Search& search) {
  std::vector<std::vector<double>> times(search.candidates.size());
  // Each round has all candidates: what changes with time changes for all.
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < search.candidates.size(); ++i) {
      const Candidate& candidate = search.candidates[i];
      if (!candidate.fault.empty()) continue;
      products_.use(product.shape(), candidate.words);
      const double before = times[i].empty() ? kMicrosecondsOfARound : std::max(times[i].back(), 1.0);
      const int count = std::clamp(static_cast<int>(kMicrosecondsOfARound / before), 1, kMostTimes);
      times[i].push_back(timer_(stream_, count, [&] { product.enqueue(products_, workspace_.data()); }));
    }
  }
  std::vector<std::size_t> preferred;  // the best at the end
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i].empty()) continue;
    std::ranges::nth_element(times[i], times[i].begin() + kRounds / 2);
    search.candidates[i].microseconds = times[i][kRounds / 2];
    if (!search.best || search.candidates[i].microseconds < search.candidates[*search.best].microseconds)
      search.best = i;
  }
  const auto table = std::ranges::find(search.candidates, true, &Candidate::from_table);
  const auto stays =
      table != search.candidates.end() && table->fault.empty() ? table : search.candidates.begin();
  if (stays->fault.empty() &&
      stays->microseconds <= (1 + kHardly) * search.candidates[*search.best].microseconds)
    search.best = static_cast<std::size_t>(stays - search.candidates.begin());
}

Search AlgorithmSearch::search(const MatmulShape& shape) {
  Search search{.candidates = candidates(shape), .best = {}, .skipped = {}};
  if (search.candidates.empty()) return search;
  find_wrong(shape, search);
  if (!search.skipped.empty()) return search;
  Multiplication product(shape, arithmetic_, stream_);
  if (!product.made()) {
    search.skipped = "there is no room for it";
    return search;
  }
  product.fill();
  find_unsteady(product, search);
  measure(product, search);
  stream_.wait();
  return search;
}

}  // namespace dtrun::worker::cuda
