#include "tests/bench/weight_ways.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "proto/core/exit_codes.h"
#include "tests/bench/algorithm_search.h"
#include "tests/bench/multiplication.h"
#include "worker/base/error.h"

namespace dtrun::worker::cuda {
namespace {

constexpr int kProducts = 4, kProposals = 16;
constexpr std::array kStreams{0, 1, 2, 4};

struct Product {
  std::unique_ptr<Multiplication> product;
  bool of_weight;
};

// In backward's order: a weight's gradient, then its layer's input gradient.
std::vector<Product> products_of_a_layer(TrialGpu& gpu, const Job& job, const Schedule& schedule) {
  const int loss = static_cast<int>(job.program.nodes.size()) - 1;
  std::vector<Product> matmuls;
  int weights = 0;
  for (const Step& step : schedule.backward) {
    const auto* const multiply = std::get_if<Matmul>(&step.work);
    if (multiply == nullptr || step.node == loss) continue;
    const bool of_weight = step.stream > 0;
    if (of_weight && weights == kProducts) break;
    weights += static_cast<int>(of_weight);
    auto product = std::make_unique<Multiplication>(multiply->shape, gpu.arithmetic, gpu.stream, 0);
    if (!product->made())
      throw WorkerError(kExitConfig, "there is no room for a matmul of " + name_of(multiply->shape));
    product->fill();
    matmuls.push_back({std::move(product), of_weight});
  }
  return matmuls;
}

// The fastest of the proposals that cut k, or of those that do not.
std::optional<AlgorithmWords> fastest(TrialGpu& gpu, Multiplication& product, bool split) {
  std::vector<AlgorithmWords> candidates;
  for (const AlgorithmWords& words : gpu.matmuls.proposals(product.shape(), kProposals))
    if ((split_of(words).value_or(1) > 1) == split && gpu.matmuls.use(product.shape(), words).empty())
      candidates.push_back(words);
  if (candidates.empty()) return {};
  std::vector<Way> ways;
  for (const AlgorithmWords& words : candidates)
    ways.push_back({.enqueue = [&] { product.enqueue(gpu.matmuls, gpu.workspace.data()); },
                    .prepare = [&] { gpu.matmuls.use(product.shape(), words); }});
  const std::vector<double> medians = medians_by_turns(gpu.stream, gpu.timer, ways);
  return candidates[static_cast<std::size_t>(std::ranges::min_element(medians) - medians.begin())];
}

// Streams beside the GPU's own, each with its own workspace.
class SideStreams {
 public:
  explicit SideStreams(TrialGpu& gpu) : gpu_(gpu) {
    for (int i = 0; i < kStreams.back(); ++i) {
      streams_.push_back(std::make_unique<CudaStream>(0));
      workspaces_.push_back(product_workspace(gpu.arithmetic));
      done_.push_back(std::make_unique<CudaEvent>());
    }
  }

  // As a lane does: a weight's gradient waits for what the own stream has made so far.
  void enqueue(const std::vector<Product>& matmuls, WeightAlgorithms algorithms, int side_streams,
               bool weights, bool inputs) {
    const auto enqueue_one = [&](Multiplication& product, void* workspace, cudaStream_t on) {
      if (algorithms == WeightAlgorithms::kApart)
        product.enqueue_apart(gpu_.matmuls, workspace, on);
      else
        product.enqueue(gpu_.matmuls, workspace, on);
    };
    auto* const own = gpu_.stream.handle();
    std::size_t next = 0, used = 0;
    for (const Product& each : matmuls) {
      if (each.of_weight ? !weights : !inputs) continue;
      if (!each.of_weight || side_streams == 0) {
        enqueue_one(*each.product, gpu_.workspace.data(), own);
        continue;
      }
      auto* const side = streams_[next]->handle();
      made_.record(own);
      made_.make_wait(side);
      enqueue_one(*each.product, workspaces_[next].data(), side);
      used = std::max(used, next + 1);
      next = (next + 1) % static_cast<std::size_t>(side_streams);
    }
    for (std::size_t i = 0; i < used; ++i) {
      done_[i]->record(streams_[i]->handle());
      done_[i]->make_wait(own);
    }
  }

 private:
  TrialGpu& gpu_;
  std::vector<std::unique_ptr<CudaStream>> streams_;
  std::vector<Buffer> workspaces_;
  std::vector<std::unique_ptr<CudaEvent>> done_;
  CudaEvent made_;
};

AlgorithmWords in_use(TrialGpu& gpu, const MatmulShape& shape) {
  return gpu.matmuls.proposals(shape, 1).at(0);
}

}  // namespace

WeightResults measure_weights(TrialGpu& gpu, const Job& job) {
  const Schedule schedule =
      schedule_of(job, [&](const MatmulShape& shape) { return gpu.matmuls.can(shape); });
  const std::vector<Product> matmuls = products_of_a_layer(gpu, job, schedule);
  SideStreams sides(gpu);
  WeightResults results;
  // By WeightAlgorithms, of each weight's gradient.
  std::array<std::vector<std::pair<MatmulShape, AlgorithmWords>>, 4> words;
  for (const Product& each : matmuls) {
    if (!each.of_weight) continue;
    const MatmulShape& shape = each.product->shape();
    const AlgorithmWords usual = in_use(gpu, shape);
    const std::optional<AlgorithmWords> unsplit = fastest(gpu, *each.product, false),
                                        split = fastest(gpu, *each.product, true);
    words[0].emplace_back(shape, usual);
    words[1].emplace_back(shape, unsplit.value_or(usual));
    words[2].emplace_back(shape, split.value_or(usual));
    const MatmulShape alone = without_sums(shape);
    words[3].emplace_back(alone, in_use(gpu, alone));
    results.matmuls.push_back(name_of(shape));
    results.splits.push_back(split ? std::to_string(split_of(*split).value_or(0)) : "-");
  }
  if (results.matmuls.empty()) return results;

  std::vector<Way> ways;
  const auto add = [&](std::size_t algorithms, int side_streams, bool weights, bool inputs) {
    const auto which = static_cast<WeightAlgorithms>(algorithms);
    results.ways.push_back({.algorithms = which,
                            .side_streams = !weights  ? -1
                                            : !inputs ? -2
                                                      : side_streams,
                            .microseconds = 0});
    ways.push_back(
        {.enqueue = [=, &sides, &matmuls] { sides.enqueue(matmuls, which, side_streams, weights, inputs); },
         .prepare =
             [=, &gpu, &words] {
               for (const auto& [shape, algorithm] : words[algorithms]) gpu.matmuls.use(shape, algorithm);
             }});
  };
  add(0, 0, false, true);
  for (std::size_t algorithms = 0; algorithms < words.size(); ++algorithms) {
    add(algorithms, 0, true, false);
    for (const int side_streams : kStreams) add(algorithms, side_streams, true, true);
  }
  const std::vector<double> medians = medians_by_turns(gpu.stream, gpu.timer, ways);
  for (std::size_t i = 0; i < medians.size(); ++i) results.ways[i].microseconds = medians[i];
  return results;
}

}  // namespace dtrun::worker::cuda
