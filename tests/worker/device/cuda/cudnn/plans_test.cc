// cuDNN's plans for the shapes of dtrun's jobs, on described GPUs: the table of docs/gpu.md. It is compared;
// DTRUN_REWRITE_TABLES=1 writes what cuDNN says now, to be reviewed as a diff.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/worker/device/cuda/cudnn/described_gpus.h"
#include "worker/device/cuda/cudnn/attention.h"
#include "worker/device/cuda/cudnn/convolution.h"

namespace dtrun::plans_test {

using namespace dtrun::worker::cuda;

namespace {

constexpr char kBegin[] = "<!-- cuDNN's plans: begin -->\n", kEnd[] = "<!-- cuDNN's plans: end -->\n";

// One line: a graph, and how each GPU does it.
struct Row {
  std::string graph;
  std::vector<std::string> cells;
};

std::string cell(const CudnnPlan& plan, std::int64_t workspace) {
  char text[64];
  std::snprintf(text, sizeof text, "%d, %.2f", static_cast<int>(plan.engine()),
                static_cast<double>(workspace) / (1 << 20));
  return text;
}

// The rows of one GPU; `add(graph, cell)` is called in the same order for each.
template <class Add>
void plan_attention(CudnnPlanner& planner, Add add) {
  for (const AttentionSizes& shape :
       {AttentionSizes{1, 12, 1024, 64}, AttentionSizes{4, 12, 1024, 64}, AttentionSizes{16, 12, 1024, 64},
        AttentionSizes{64, 12, 1024, 64}, AttentionSizes{16, 4, 128, 64}}) {
    const std::string name = "attention B=" + std::to_string(shape.batch) +
                             " H=" + std::to_string(shape.heads) + " T=" + std::to_string(shape.positions) +
                             " d=" + std::to_string(shape.head_size) + " bf16 | ";
    const Result<AttentionGraphs> made = AttentionGraphs::plan(planner, shape);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    const AttentionGraphs& graphs = made.value();
    add(name + "forward", cell(graphs.forward_plan(), graphs.forward_workspace()));
    add(name + "backward", cell(graphs.backward_plan(), graphs.backward_workspace()));
  }
}

template <class Add>
void plan_convolutions(CudnnPlanner& planner, Add add) {
  for (const ConvType type : {ConvType::kFp32, ConvType::kBf16})
    for (const ConvSizes& shape : {ConvSizes{16, 1, 28, 28, 20, 5}, ConvSizes{16, 20, 12, 12, 20, 5},
                                   ConvSizes{16, 3, 32, 32, 20, 5}, ConvSizes{16, 20, 14, 14, 20, 5}}) {
      const std::string name = "convolution N=" + std::to_string(shape.batch) + " " +
                               std::to_string(shape.in_channels) + "×" + std::to_string(shape.height) + "×" +
                               std::to_string(shape.width) + " to " + std::to_string(shape.out_channels) +
                               (type == ConvType::kFp32 ? " fp32 | " : " bf16 | ");
      const Result<ConvGraphs> made = ConvGraphs::plan(planner, shape, type);
      REQUIRE_MESSAGE(made.ok(), made.status().message());
      const auto add_plan = [&](const std::string& which, const CudnnPlan& plan) {
        add(name + which, cell(plan, plan.workspace_size()));
      };
      add_plan("forward", made.value().forward_plan());
      add_plan("input gradient", made.value().input_gradient_plan());
      add_plan("weight gradient", made.value().weight_gradient_plan());
    }
}

std::string table(const Cudnn& cudnn) {
  std::vector<Row> rows;
  std::string head = "| graph | | deterministic |", line = "| --- | --- | --- |";
  for (const PlanDevice& gpu : {test::a100(), test::h100(), test::h200()}) {
    head += " " + gpu.name + " |";
    line += " --- |";
    CudnnPlanner planner(cudnn, gpu, "");
    std::size_t next = 0;
    const auto add_as = [&](const std::string& why_deterministic) {
      return [&, why_deterministic](const std::string& graph, const std::string& text) {
        if (next == rows.size()) rows.push_back({graph + " | " + why_deterministic, {}});
        rows[next++].cells.push_back(text);
      };
    };
    plan_attention(planner, add_as("by its graph"));
    plan_convolutions(planner, add_as("by cuDNN's word"));
  }
  std::string text = "cuDNN " + cudnn.version + ":\n\n" + head + "\n" + line + "\n";
  for (const Row& row : rows) {
    text += "| " + row.graph + " |";
    for (const std::string& of_gpu : row.cells) text += " " + of_gpu + " |";
    text += "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("cuDNN plans the known shapes as docs/gpu.md has them") {
  const Cudnn* cudnn = test::cudnn_without_gpu();
  if (cudnn == nullptr) return test::skip(why_no_cudnn());
  const std::string path = DTRUN_SOURCE_DIR "/docs/gpu.md", page = test::read_text(path);
  const std::size_t begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t first = begin + sizeof kBegin - 1;
  const std::string written = page.substr(first, end - first);
  const bool rewrite = std::getenv("DTRUN_REWRITE_TABLES") != nullptr;
  if (!rewrite && !written.starts_with("cuDNN " + cudnn->version + ":"))
    return test::skip("docs/gpu.md has the plans of another cuDNN than " + cudnn->version);
  const std::string now = table(*cudnn);
  std::printf("%s", now.c_str());
  if (rewrite) return test::write_text(path, page.substr(0, first) + now + page.substr(end));
  CHECK(now == written);
}

}  // namespace dtrun::plans_test
