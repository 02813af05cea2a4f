// How much work a program's nodes are.
#include "worker/model/cost.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/worker/model/programs.h"
#include "worker/model/builder.h"

using namespace dtrun::worker;

namespace {

// By what the node is; the last of several that are the same.
std::map<std::string, NodeCost> costs(const Program& program, double samples) {
  std::map<std::string, NodeCost> costs;
  for (std::size_t i = 0; i < program.nodes.size(); ++i)
    costs[describe(program, static_cast<int>(i))] = cost_of(program, static_cast<int>(i), samples);
  return costs;
}

}  // namespace

TEST_CASE("a convolution is a product per output value, and the first layer's backward is half the work") {
  const auto all = costs(convnet_program(), 2);
  const NodeCost first = all.at("Conv2d 5x5, 1x28x28 -> 20x24x24");
  CHECK(first.forward.flops == 2.0 * 2 * 20 * 24 * 24 * 25);
  CHECK(first.backward.flops == first.forward.flops);  // nobody wants the image's gradient
  const NodeCost second = all.at("Conv2d 5x5, 20x12x12 -> 20x8x8");
  CHECK(second.forward.flops == 2.0 * 2 * 20 * 8 * 8 * 20 * 25);
  CHECK(second.backward.flops == 2 * second.forward.flops);
  const NodeCost linear = all.at("Linear 320 -> 50");
  CHECK(linear.forward.flops == 2.0 * 2 * 320 * 50);
  CHECK(linear.forward.bytes() == 4.0 * (2 * 320 + 320 * 50 + 50 + 2 * 50));
  CHECK(linear.backward.bytes() == 4.0 * (2 * 50 + 2 * 320 + 2 * (320 * 50 + 50) + 2 * 320));
  CHECK(all.at("MaxPool2d 2, 20x24x24").forward.flops == 0);
  CHECK(all.at("Flatten").forward.bytes() == 0);
}

TEST_CASE("attention looks at each earlier token once for its score and once for its value") {
  ProgramBuilder builder(
      {.input = SampleSpec::Input::kTokens, .shape = {1, 1, 3}, .targets = 3, .classes = 100});
  Value value = builder.embedding(builder.input(), "wte", 100, 8, NormalInit{0.02f});
  value = builder.attention(builder.linear(value, "qkv", 24), 2);
  const Program program = builder.finish(builder.linear(value, "head", 100));
  const auto all = costs(program, 5);
  const NodeCost attention = all.at("Attention, 2 heads of 4, 3 tokens");
  CHECK(attention.forward.flops == 2.0 * 5 * (1 + 2 + 3) * 8 * 2);
  CHECK(attention.backward.flops == 2 * attention.forward.flops);
  // Only the rows of 15 tokens are read; not the whole table, if that is larger.
  CHECK(all.at("Embedding 100 x 8").forward.bytes() == 4.0 * (15 + 15 * 8 + 15 * 8));
}
