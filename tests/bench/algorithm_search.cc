#include "tests/bench/algorithm_search.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tests/bench/multiplication.h"
#include "worker/base/error.h"
#include "worker/device/cuda/matmul/matmul_check.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kProposals = 16;
constexpr int kRepetitions = 24;
constexpr int kKept = 2;  // results: a candidate's first, and an unsplit one's
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

}  // namespace

std::optional<int> split_of(const AlgorithmWords& words) {
  return attribute<std::int32_t>(words, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

namespace {

Candidate candidate_of(const AlgorithmWords& words) {
  Candidate candidate;
  candidate.words = words;
  candidate.split = split_of(words);
  candidate.name = "algorithm " + text_of(attribute<std::int32_t>(words, CUBLASLT_ALGO_CONFIG_ID)) +
                   ", tile " + text_of(attribute<std::uint32_t>(words, CUBLASLT_ALGO_CONFIG_TILE_ID)) +
                   ", stages " + text_of(attribute<std::uint32_t>(words, CUBLASLT_ALGO_CONFIG_STAGES_ID)) +
                   ", split " + text_of(candidate.split);
  return candidate;
}

}  // namespace

AlgorithmSearch::AlgorithmSearch(int gpu, Timer timer)
    : arithmetic_(gpu),
      stream_(gpu),
      timer_(std::move(timer)),
      workspace_(arithmetic_.allocate_bytes(kWorkspace, "the work of matmuls")) {}

std::vector<Candidate> AlgorithmSearch::candidates(const MatmulShape& shape) {
  std::vector<Candidate> found;
  for (const int most : {1, kProposals})
    for (const AlgorithmWords& words : matmuls_.proposals(shape, most))
      if (std::ranges::find(found, words, &Candidate::words) == found.end())
        found.push_back(candidate_of(words));
  return found;
}

void AlgorithmSearch::find_wrong(const MatmulShape& shape, Search& search) {
  Trial trial(arithmetic_, stream_, nullptr, 0);
  for (Candidate& candidate : search.candidates) {
    const std::string refused = matmuls_.use(shape, candidate.words);
    if (!refused.empty()) {
      candidate.fault = "refused: " + refused;
      continue;
    }
    try {
      const std::optional<std::string> fault = fault_of(shape, matmuls_, trial, workspace_.data());
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
  constexpr int kFirst = 0, kUnsplit = 1;
  for (Candidate& candidate : search.candidates) {
    if (!candidate.fault.empty()) continue;
    matmuls_.use(product.shape(), candidate.words);
    for (int time = 0; time < kRepetitions && candidate.fault.empty(); ++time) {
      product.fill_results();
      product.enqueue(matmuls_, workspace_.data());
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
  std::vector<Candidate*> good;
  std::vector<Way> ways;
  for (Candidate& candidate : search.candidates) {
    if (!candidate.fault.empty()) continue;
    good.push_back(&candidate);
    ways.push_back({.enqueue = [&] { product.enqueue(matmuls_, workspace_.data()); },
                    .prepare = [&] { matmuls_.use(product.shape(), candidate.words); }});
  }
  const std::vector<double> medians = medians_by_turns(stream_, timer_, ways);
  for (std::size_t i = 0; i < good.size(); ++i) {
    good[i]->microseconds = medians[i];
    if (!search.best || medians[i] < search.candidates[*search.best].microseconds)
      search.best = static_cast<std::size_t>(good[i] - search.candidates.data());
  }
  if (!search.best) return;
  const Candidate& first = search.candidates.front();
  if (first.fault.empty() &&
      first.microseconds <= (1 + kHardly) * search.candidates[*search.best].microseconds)
    search.best = 0;
}

Search AlgorithmSearch::search(const MatmulShape& shape) {
  Search search{.candidates = candidates(shape), .best = {}, .skipped = {}};
  if (search.candidates.empty()) return search;
  find_wrong(shape, search);
  if (!search.skipped.empty()) return search;
  Multiplication product(shape, arithmetic_, stream_, kKept);
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
