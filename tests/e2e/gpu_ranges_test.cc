// The ranges of a job on a GPU that a tool such as Nsight Systems sees: ranges by NVTX, as a tool of our own
// records them (tests/support/nvtx_recorder).
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/e2e/gpu_lab.h"

namespace dtrun::gpu_ranges_test {

using namespace dtrun::test;

namespace {

// How often a range of each name was within each other one; "" is none. REQUIRES: a range ends before those
// that began before it.
using Nesting = std::map<std::pair<std::string, std::string>, int>;

Nesting nesting(const std::string& record) {
  Nesting seen;
  std::map<std::string, Words> open;  // by thread
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string sign, thread, domain, name;
    words >> sign >> thread >> domain;
    std::getline(words >> std::ws, name);
    CHECK(domain == "dtrun");
    Words& stack = open[thread];
    if (sign == "-") {
      REQUIRE(!stack.empty());
      stack.pop_back();
    } else {
      ++seen[{stack.empty() ? "" : stack.back(), name}];
      stack.push_back(name);
    }
  }
  for (const auto& [thread, stack] : open) CHECK(stack.empty());
  return seen;
}

Nesting recorded(const Lab& lab, const Words& argv, const Words& variables = {}) {
  const std::string file = lab.output("ranges").string();
  Words all{"NVTX_INJECTION64_PATH=" DTRUN_NVTX_RECORDER, "DTRUN_TEST_NVTX=" + file};
  all.insert(all.end(), variables.begin(), variables.end());
  const Ended ended = lab.run(argv, all);
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  const std::string record = read_if_there(file);
  std::filesystem::remove(file);
  return nesting(record);
}

constexpr int kSteps = 4, kMicrobatches = 8;

}  // namespace

TEST_CASE("steps, microbatches, passes, operations, updates and saves lie within each other") {
  const Lab lab;
  const Model one = models()[0];
  // Kernel by kernel each operation is a range.
  Nesting seen = recorded(lab, lab.job(one, 1, "plain", kSteps), {"DTRUN_TEST_CUDA_GRAPHS=0"});
  using Pair = std::pair<std::string, std::string>;
  CHECK(seen[Pair("", "step")] == kSteps);
  CHECK(seen[Pair("step", "microbatch")] == kSteps * kMicrobatches);
  CHECK(seen[Pair("microbatch", "forward")] >= kSteps * kMicrobatches);
  CHECK(seen[Pair("microbatch", "backward")] == kSteps * kMicrobatches);
  CHECK(seen[Pair("step", "wait")] == kSteps);
  CHECK(seen[Pair("step", "update")] == kSteps);
  CHECK(seen[Pair("", "save")] == 1);        // after 3 steps
  CHECK(seen[Pair("", "evaluation")] == 1);  // at the end
  CHECK(seen[Pair("evaluation", "microbatch")] > 0);
  CHECK(seen[Pair("microbatch", "loss")] == seen[Pair("evaluation", "microbatch")]);
  // For both layers.
  CHECK(seen[Pair("backward", "Linear 64 -> 192, weight gradient")] == 2 * kSteps * kMicrobatches);
  CHECK(seen[Pair("forward", "Linear 64 -> 256 + GELU, forward")] ==
        2 * (kSteps * kMicrobatches + seen[Pair("evaluation", "microbatch")]));

  // A graph is launched by one call: its operations have ranges only where they are enqueued for the first
  // time.
  Nesting graphs = recorded(lab, lab.job(one, 1, "graphs", kSteps));
  CHECK(graphs[Pair("step", "microbatch")] == kSteps * kMicrobatches);
  CHECK(graphs[Pair("microbatch", "backward")] < kSteps * kMicrobatches);
  CHECK(lab.model("graphs") == lab.model("plain"));

  // With a peer gradients are exchanged; each worker has its half of the microbatches.
  Nesting both = recorded(lab, lab.job(one, 2, "both", kSteps));
  CHECK(both[Pair("step", "exchange")] == 2 * kSteps);
  CHECK(both[Pair("step", "microbatch")] == kSteps * kMicrobatches);
}

}  // namespace dtrun::gpu_ranges_test
