// Models as lists of layers: the built-in chains, and one's own.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/worker/model/programs.h"
#include "worker/base/error.h"
#include "worker/model/plan.h"

namespace dtrun::layers_test {

using namespace dtrun::worker;

namespace {

const SampleSpec kImage{.shape = {1, 28, 28}, .classes = 10};

Program own(std::vector<Layer> layers, const SampleSpec& sample = kImage) {
  return make_program(layers_config(std::move(layers)), sample);
}

std::string layer_fault(std::vector<Layer> layers) {
  try {
    own(std::move(layers));
  } catch (const WorkerError& error) {
    CHECK(error.exit_code() == dtrun::kExitConfig);
    return error.what();
  }
  return "none";
}

Layer conv(int channels, int kernel) {
  return {.type = LayerType::kConv2d, .name = "c", .out_channels = channels, .kernel_size = kernel};
}
Layer linear(const std::string& name, std::optional<int> features = {}) {
  return {.type = LayerType::kLinear, .name = name, .out_features = features};
}

constexpr char kAt[] = "the data does not fit the model: /model/layers/";

}  // namespace

TEST_CASE("the list of the convnet's layers is the convnet: shapes, buckets and initial values") {
  Layer first = conv(20, 5), second = conv(20, 5);
  first.name = "conv1", second.name = "conv2";
  const Layer relu{.type = LayerType::kReLU}, pool{.type = LayerType::kMaxPool2d, .kernel_size = 2};
  const Program listed = own({first,
                              relu,
                              pool,
                              second,
                              relu,
                              pool,
                              {.type = LayerType::kFlatten},
                              linear("fc1", 50),
                              relu,
                              linear("fc2")});
  const Program built_in = convnet_program();
  CHECK(listed.buckets == built_in.buckets);
  CHECK(listed.nodes.size() == built_in.nodes.size());
  std::vector<float> ours(listed.size), theirs(built_in.size);
  initialize_parameters(listed, 1, ours);
  initialize_parameters(built_in, 1, theirs);
  CHECK(parameters_sha256(listed, ours) == parameters_sha256(built_in, theirs));
  CHECK(description(listed).at("layers") == description(built_in).at("layers"));
  CHECK(built_in.layers.empty());
}

TEST_CASE("the saved description has the arguments that followed from the data") {
  const Program program = own({{.type = LayerType::kFlatten, .name = "0"},
                               linear("in", 24),
                               {.type = LayerType::kLayerNorm, .name = "norm"},
                               {.type = LayerType::kAdd, .name = "sum", .add = "in"},
                               linear("out")});
  CHECK(description(program).at("modules") ==
        R"([{"Flatten":{}},{"Linear":{"in_features":784,"out_features":24,"bias":true},"name":"in"},)"
        R"({"LayerNorm":{"normalized_shape":24},"name":"norm"},{"add":"in","name":"sum"},)"
        R"({"Linear":{"in_features":24,"out_features":10,"bias":true},"name":"out"}])");
  CHECK(!description(program).contains("layers"));  // it is no chain
}

TEST_CASE("a window moves by its stride over an image with its padding, and PyTorch's words say so") {
  Layer first = conv(6, 5), second = conv(4, 1);
  first.stride = 2, first.padding = 1, first.bias = false;
  second.name = "d", second.stride = 2;
  const Program program =
      own({first,
           {.type = LayerType::kMaxPool2d, .name = "p", .kernel_size = 3, .stride = 2, .padding = 1},
           second,
           {.type = LayerType::kFlatten, .name = "flat"},
           {.type = LayerType::kLinear, .name = "out", .bias = false}});
  CHECK(program.values[1].row == SampleShape{6, 13, 13});
  CHECK(program.values[2].row == SampleShape{6, 7, 7});
  CHECK(program.values[3].row == SampleShape{4, 4, 4});
  CHECK(
      description(program).at("layers") ==
      "c=Conv2d(1, 6, 5, 2, 1, 1, 1, False) -> MaxPool2d(3, 2, 1) -> d=Conv2d(6, 4, 1, 2, 0) -> Flatten() -> "
      "out=Linear(64, 10, False) -> LogSoftmax(1)");
  CHECK(describe(program, 1) == "MaxPool2d 3, stride 2, padding 1, 6x13x13");
  CHECK(!fits_groups(program));
}

TEST_CASE("what does not fit names its layer, and the shape that reaches it") {
  const Layer flatten{.type = LayerType::kFlatten, .name = "flat"};
  CHECK(layer_fault({conv(6, 5), conv(6, 25), flatten, linear("out")}) ==
        std::string(kAt) +
            "1: Conv2d needs at least 25x25, and 6x24x24 reaches it, of samples of 1x28x28; choose other "
            "data, another model, or fewer or smaller layers");
  CHECK(layer_fault({linear("out")}) ==
        std::string(kAt) + "0: Linear takes rows, and 1x28x28 reaches it: put a Flatten before it");
  CHECK(layer_fault({{.type = LayerType::kAdaptiveAvgPool2d, .name = "mean"}, linear("out")}) ==
        std::string(kAt) + "1: Linear takes rows, and 1x1x1 reaches it: put a Flatten before it");
  CHECK(layer_fault({flatten, conv(6, 1), linear("out")}) ==
        std::string(kAt) + "1: Conv2d takes images, and a row of 784 reaches it");
  CHECK(layer_fault(
            {{.type = LayerType::kMaxPool2d, .name = "p", .kernel_size = 3, .padding = 2}, linear("out")}) ==
        std::string(kAt) + "0: MaxPool2d has a padding of 2, more than half its kernel_size");
  Layer wrong = linear("out");
  wrong.in = 320;
  CHECK(layer_fault({flatten, wrong}) ==
        std::string(kAt) + "1: Linear is said to take 320, and 784x1x1 reaches it");
  CHECK(layer_fault({flatten,
                     linear("a", 8),
                     {.type = LayerType::kAdd, .name = "sum", .add = "flat"},
                     linear("out")}) ==
        std::string(kAt) + "2: add adds outputs of different shapes, 8x1x1 and 784x1x1");
  CHECK(
      layer_fault({flatten, linear("out", 12)}) ==
      std::string(kAt) +
          "1: Linear makes 12 logits, and the data has 10 classes (leave out_features out to have as many)");
  CHECK(layer_fault({flatten, linear("out", 10), {.type = LayerType::kReLU, .name = "last"}}) ==
        std::string(kAt) + "2: ReLU is the last layer, which must be a Linear: it makes the logits");
  Layer jump = linear("out");
  jump.input = "flat";
  CHECK(layer_fault({flatten, linear("unread", 8), jump}) ==
        std::string(kAt) + "1: Linear is read by no layer: leave it out");
}

}  // namespace dtrun::layers_test
