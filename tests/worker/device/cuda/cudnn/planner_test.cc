// How a plan is found, kept and refused. Without a GPU: nothing runs.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/worker/device/cuda/cudnn/described_gpus.h"
#include "worker/device/cuda/cudnn/attention.h"
#include "worker/device/cuda/cudnn/convolution.h"

namespace dtrun::planner_test {

using namespace dtrun::worker::cuda;
using test::contains;

namespace {

constexpr AttentionSizes kAttention{.batch = 2, .heads = 4, .positions = 128, .head_size = 64};
constexpr ConvSizes kConvolution{
    .batch = 16, .in_channels = 20, .height = 12, .width = 12, .out_channels = 20, .kernel = 5};

// Every stored plan's text gone through `change`, which gets its graph's identity and the text.
template <class Change>
std::string changed(const std::string& stored, Change change) {
  nlohmann::json all = nlohmann::json::parse(stored);
  for (auto& [identity, text] : all.at("plans").items()) text = change(identity, std::string(text));
  return all.dump();
}

Graph forward_convolution(const Cudnn& cudnn, std::int64_t size) {
  Graph graph(cudnn, "convolution " + std::to_string(size));
  const auto images = graph.memory(1, TensorLayout::dense({16, 20, size, size}), CUDNN_DATA_BFLOAT16);
  const auto weight = graph.memory(2, TensorLayout::dense({20, 20, 5, 5}), CUDNN_DATA_BFLOAT16);
  const auto outputs =
      graph.memory(3, TensorLayout::dense({16, 20, size - 4, size - 4}), CUDNN_DATA_BFLOAT16);
  graph.conv_forward(images, weight, outputs);
  return graph;
}

}  // namespace

TEST_CASE("a plan that is loaded from its text is the plan that was made") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  CudnnPlanner first(*cudnn, test::h100(), "");
  const Result<AttentionGraphs> made = AttentionGraphs::plan(first, kAttention);
  REQUIRE_MESSAGE(made.ok(), made.status().message());
  REQUIRE(ConvGraphs::plan(first, kConvolution, ConvType::kFp32).ok());
  CHECK(nlohmann::json::parse(first.stored()).at("plans").size() == 5);

  CudnnPlanner second(*cudnn, test::h100(), first.stored());
  const Result<AttentionGraphs> again = AttentionGraphs::plan(second, kAttention);
  REQUIRE_MESSAGE(again.ok(), again.status().message());
  CHECK(again.value().forward_plan().engine() == made.value().forward_plan().engine());
  CHECK(again.value().backward_plan().engine() == made.value().backward_plan().engine());
  CHECK(again.value().backward_workspace() == made.value().backward_workspace());
  CHECK((again.value().backward_plan().json() == made.value().backward_plan().json()));
  CHECK((second.stored() == first.stored()));
}

TEST_CASE("of the engines that cuDNN proposes first, those against the rules are passed over") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  CudnnPlanner planner(*cudnn, test::h100(), "");
  int other_by_deterministic = 0, other_by_full_fp32 = 0;
  for (const bool of_input : {false, true})
    for (const std::int64_t channels : {1, 3, 64}) {
      Graph graph(*cudnn, of_input ? "input gradient" : "weight gradient");
      const auto x = graph.memory(1, TensorLayout::dense({16, channels, 32, 32}), CUDNN_DATA_FLOAT);
      const auto w = graph.memory(2, TensorLayout::dense({64, channels, 3, 3}), CUDNN_DATA_FLOAT);
      const auto y = graph.memory(3, TensorLayout::dense({16, 64, 30, 30}), CUDNN_DATA_FLOAT);
      of_input ? graph.conv_input_gradient(y, w, x) : graph.conv_weight_gradient(x, y, w);
      const std::int64_t first = planner.plan(graph, {}).engine();
      const std::int64_t both = planner.plan(graph, {.deterministic = true, .full_fp32 = true}).engine();
      if (planner.plan(graph, {.deterministic = true}).engine() != first) {
        ++other_by_deterministic;
        CHECK(both != first);
      }
      if (planner.plan(graph, {.full_fp32 = true}).engine() != first) {
        ++other_by_full_fp32;
        CHECK(both != first);
      }
    }
  CHECK(other_by_deterministic > 0);
  CHECK(other_by_full_fp32 > 0);
}

TEST_CASE("a stored plan is taken by the graph's identity, and nothing is planned anew") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  const Graph small = forward_convolution(*cudnn, 12), large = forward_convolution(*cudnn, 14);
  CudnnPlanner first(*cudnn, test::h100(), "");
  const std::int64_t of_small = first.plan(small, {}).workspace_size();
  const std::string of_large = first.plan(large, {}).json();
  REQUIRE(first.plan(large, {}).workspace_size() != of_small);
  // A text with the wrong plan under the small one's name shows whose plan it gets.
  const std::string stored =
      changed(first.stored(), [&](const std::string& identity, const std::string& text) {
        return identity == small.identity() ? of_large : text;
      });
  CHECK(CudnnPlanner(*cudnn, test::h100(), stored).plan(small, {}).workspace_size() != of_small);
  CHECK(CudnnPlanner(*cudnn, test::h200(), stored).plan(small, {}).workspace_size() == of_small);
  CHECK(CudnnPlanner(*cudnn, test::h100(), stored).plan(small, {.deterministic = true}).workspace_size() ==
        of_small);
}

TEST_CASE("a stored plan that is damaged is made again") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  const Graph graph = forward_convolution(*cudnn, 12);
  CudnnPlanner first(*cudnn, test::h100(), "");
  const CudnnPlan made = first.plan(graph, {});
  const std::string whole = first.stored();
  const auto damaged = [&](const std::string& text) {
    return changed(whole, [&](const std::string&, const std::string&) { return text; });
  };
  for (const std::string& text : {std::string(), std::string("{}"), std::string("no plan"),
                                  made.json().substr(0, made.json().size() / 2), std::string("[1, 2]")}) {
    CAPTURE(text.substr(0, 80));
    CudnnPlanner second(*cudnn, test::h100(), damaged(text));
    CHECK(second.plan(graph, {}).workspace_size() == made.workspace_size());
    CHECK((second.stored() == whole));
  }
}

TEST_CASE("graphs are the same by what they compute, not by their names alone") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  const auto identity = [&](std::int64_t channels, bool backward, ConvMoves moves = {}) {
    Graph graph(*cudnn, "same name");
    const auto x = graph.memory(1, TensorLayout::dense({4, channels, 12, 12}), CUDNN_DATA_FLOAT);
    const auto w = graph.memory(2, TensorLayout::dense({8, channels, 5, 5}), CUDNN_DATA_FLOAT);
    const auto y = graph.memory(3, TensorLayout::dense({4, 8, 8, 8}), CUDNN_DATA_FLOAT);
    backward ? graph.conv_weight_gradient(x, y, w, moves) : graph.conv_forward(x, w, y, moves);
    return graph.identity();
  };
  CHECK(identity(3, false) == identity(3, false));
  CHECK(identity(3, false) != identity(4, false));
  CHECK(identity(3, false) != identity(3, true));
  // Also at the same sizes of all tensors: 12 -> 8 by windows of 5.
  CHECK(identity(3, false) == identity(3, false, {.stride = 1, .padding = 0}));
  CHECK(identity(3, false) != identity(3, false, {.stride = 2, .padding = 4}));
}

TEST_CASE("a convolution has a plan for each stride and padding, and its results have their sizes") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  CudnnPlanner planner(*cudnn, test::h100(), "");
  ConvSizes sizes = kConvolution;
  sizes.kernel = 3, sizes.stride = 2, sizes.padding = 1;
  CHECK(sizes.out_height() == 6);
  for (const ConvType type : {ConvType::kFp32, ConvType::kBf16}) {
    const Result<ConvGraphs> made = ConvGraphs::plan(planner, sizes, type);
    CHECK_MESSAGE(made.ok(), made.status().message());
  }
}

TEST_CASE("what cuDNN cannot do is said with its reason, and nothing ends") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  CudnnPlanner planner(*cudnn, test::h100(), "");
  const auto attention = [&](std::int64_t head_size) {
    return AttentionGraphs::plan(planner, {.batch = 2, .heads = 4, .positions = 128, .head_size = head_size})
        .status()
        .message();
  };
  // Its kernels take head sizes that are multiples of 8.
  CHECK(contains(attention(60), "no engine for attention forward B=2 H=4 T=128 d=60 bf16 on NVIDIA H100"));
  CHECK(contains(attention(1024), "no engine for attention"));
  CHECK(contains(attention(-8), "CUDNN_STATUS_BAD_PARAM"));
  const Result<ConvGraphs> none = ConvGraphs::plan(
      planner, {.batch = 1, .in_channels = 1, .height = 3, .width = 3, .out_channels = 1, .kernel = 5},
      ConvType::kFp32);
  CHECK(!none.ok());
  CHECK(contains(none.status().message(), "CUDNN_STATUS_BAD_PARAM"));
}

TEST_CASE("attention's gradients are not asked of a GPU on which they would not be the same each time") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  PlanDevice blackwell = test::h200();
  blackwell.name = "NVIDIA B200";
  blackwell.compute_capability = 100;
  CudnnPlanner planner(*cudnn, blackwell, "");
  CHECK(contains(AttentionGraphs::plan(planner, kAttention).status().message(), "deterministic"));
}

TEST_CASE("a device that is not described is refused with a text") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  for (const char* description : {"", "{", "no device"}) {
    CAPTURE(description);
    PlanDevice device = test::h100();
    device.description = description;
    CHECK_THROWS_AS(CudnnPlanner(*cudnn, device, ""), CudnnRefusal);
  }
}

}  // namespace dtrun::planner_test
