// The list of a model of one's own: read, checked, written again.
#include "worker/config/layers.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "worker/config/config.h"

namespace dtrun::layers_test {

using namespace dtrun::worker;

namespace {

std::string config(const std::string& layers) {
  return R"({"output_dir": "o", "model": {"type": "layers", "layers": )" + layers +
         R"(}, "data": {"type": "synthetic"}})";
}

std::vector<Layer> layers_of(const std::string& layers) {
  const auto parsed = parse_config(config(layers), "c.json", {});
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  return parsed.value().model.layers;
}

std::string layer_fault(const std::string& layers, const std::vector<std::string>& overrides = {}) {
  const auto parsed = parse_config(config(layers), "c.json", overrides);
  REQUIRE(!parsed.ok());
  return parsed.status().message();
}

// All arguments but those that follow from the data.
constexpr char kAll[] =
    R"([{"Conv2d":{"out_channels":6,"kernel_size":5,"stride":2,"padding":3,"bias":false},"name":"first"},)"
    R"({"ReLU":{}},{"MaxPool2d":{"kernel_size":2,"padding":0}},{"Flatten":{}},{"Dropout":{"p":0.25}},)"
    R"({"Linear":{"out_features":84,"bias":true}},{"GELU":{"approximate":"tanh"}},{"LayerNorm":{}},)"
    R"({"BatchNorm1d":{"eps":0.001,"momentum":0.2}},)"
    R"({"add":"5","name":"sum"},{"Linear":{"bias":false},"input":"sum"}])";

}  // namespace

TEST_CASE("a list is read, and is written as it was") {
  const std::vector<Layer> layers = layers_of(kAll);
  REQUIRE(layers.size() == 11);
  CHECK(layers[0].type == LayerType::kConv2d);
  CHECK(layers[0].name == "first");
  CHECK(layers[0].out_channels == 6);
  CHECK(layers[0].kernel_size == 5);
  CHECK(layers[0].stride == 2);
  CHECK(layers[0].padding == 3);
  CHECK(!layers[0].bias);
  CHECK(!layers[2].stride);
  CHECK(layers[1].name == "1");
  CHECK(layers[4].p == 0.25);
  CHECK(layers[9].add == "5");
  CHECK(layers[10].input == "sum");
  CHECK(!layers[10].out_features);
  CHECK(json_of(layers).dump() == kAll);
}

TEST_CASE("a layer without arguments may be its name alone, and p is PyTorch's") {
  CHECK(json_of(layers_of(R"(["Flatten", "ReLU", "Dropout", "Linear"])")).dump() ==
        R"([{"Flatten":{}},{"ReLU":{}},{"Dropout":{"p":0.5}},{"Linear":{"bias":true}}])");
}

TEST_CASE("the canonical text of a config has its layers, and is read again to the same") {
  const auto parsed = parse_config(config(kAll), "c.json", {});
  REQUIRE(parsed.ok());
  const std::string text = to_canonical_json(parsed.value());
  const auto again = parse_config(text, "c.json", {});
  REQUIRE_MESSAGE(again.ok(), again.status().message());
  CHECK(to_canonical_json(again.value()) == text);
  CHECK(nlohmann::json::parse(text)["model"]["layers"] == nlohmann::json::parse(kAll));
}

TEST_CASE("each fault names its layer") {
  struct Case {
    std::string layers, fault;
  };
  const Case cases[] = {
      {"5", "c.json: /model/layers: found 5 (an integer), wanted a list of layers"},
      {"[]", "c.json: /model/layers: has 0 layers (allowed: 1 to 1000)"},
      {"[5]",
       R"(c.json: /model/layers/0: found 5 (an integer), wanted a layer such as "ReLU" or {"Linear": {"out_features": 10}})"},
      {R"(["Relu"])", R"(c.json: /model/layers/0: Relu is no known layer; did you mean "ReLU"?)"},
      {R"(["LogSoftmax"])",
       "c.json: /model/layers/0: LogSoftmax is no known layer; leave it out: the loss has it"},
      {R"([{}])",
       "c.json: /model/layers/0: names no layer (known: Conv2d, MaxPool2d, AdaptiveAvgPool2d, Linear, "
       "LayerNorm, BatchNorm2d, BatchNorm1d, ReLU, GELU, "
       "Dropout, "
       "Flatten, add)"},
      {R"(["Flatten", {"Linear": {}, "ReLU": {}}])",
       "c.json: /model/layers/1: is Linear and ReLU; make two layers of it"},
      {R"([{"AdaptiveAvgPool2d": {"output_size": 2}}])",
       "c.json: /model/layers/0/AdaptiveAvgPool2d/output_size: 2 is out of range (allowed: 1 to 1)"},
      {R"([{"Linear": 10}])",
       "c.json: /model/layers/0/Linear: found 10 (an integer), wanted an object with its arguments"},
      {R"([{"Linear": {"out_feature": 10}}])",
       R"(c.json: /model/layers/0/Linear/out_feature: unknown argument; did you mean "out_features"?)"},
      {R"([{"Linear": {"out_features": 0}}])",
       "c.json: /model/layers/0/Linear/out_features: 0 is out of range (allowed: 1 to 131072)"},
      {R"([{"Conv2d": {"out_channels": 6, "kernel_size": "5"}}])",
       "c.json: /model/layers/0/Conv2d/kernel_size: found \"5\" (a string), wanted an integer (allowed: 1 to "
       "31)"},
      {R"(["Conv2d"])",
       "c.json: /model/layers/0/Conv2d/out_channels: is missing (allowed: 1 to 4096)\n"
       "c.json: /model/layers/0/Conv2d/kernel_size: is missing (allowed: 1 to 31)"},
      {R"([{"Conv2d": {"out_channels": 6, "kernel_size": 5, "padding": -1}}])",
       "c.json: /model/layers/0/Conv2d/padding: -1 is out of range (allowed: 0 to 30)"},
      {R"([{"ReLU": {"slope": 1}}])", "c.json: /model/layers/0/ReLU/slope: unknown argument; it takes none"},
      {R"(["GELU"])", "c.json: /model/layers/0/GELU/approximate: is missing (allowed: \"tanh\")"},
      {R"([{"GELU": {"approximate": "none"}}])",
       "c.json: /model/layers/0/GELU/approximate: \"none\" is not known (allowed: \"tanh\")"},
      {R"([{"Dropout": {"p": 1}}])",
       "c.json: /model/layers/0/Dropout/p: 1 is out of range (allowed: 0 or more, less than 1)"},
      {R"([{"Linear": {}, "name": "a b"}])",
       "c.json: /model/layers/0/name: \"a b\" is not understood (allowed: letters, digits and _)"},
      {R"([{"Linear": {}, "name": "1"}, "Linear"])",
       "c.json: /model/layers/1/name: a layer above is called \"1\" already"},
      {R"([{"Linear": {}, "name": "fc1"}, {"add": "fc2"}])",
       "c.json: /model/layers/1/add: no layer above is called \"fc2\"; did you mean \"fc1\"?"},
      {R"([{"add": "0"}])", "c.json: /model/layers/0/add: no layer above is called \"0\""},
      {R"(["Linear", {"Linear": {}, "input": "1"}])",
       "c.json: /model/layers/1/input: no layer above is called \"1\""},
      {R"([{"Linear": {}, "inputs": "0"}])",
       "c.json: /model/layers/0: is Linear and inputs; make two layers of it"},
  };
  for (const Case& one : cases) CHECK(layer_fault(one.layers) == one.fault);
}

TEST_CASE("a fault in an override is the override's, and other models have no layers") {
  CHECK(
      layer_fault(R"(["Linear"])", {R"(model.layers=["Liner"])"}) ==
      R"(override model.layers=["Liner"]: /model/layers/0: Liner is no known layer; did you mean "Linear"?)");
  CHECK(layer_fault(R"(["Linear"])", {"model.type=mlp"}) ==
        "c.json: /model/layers: is only for the type \"layers\"");
}

TEST_CASE("the schema has each layer with its arguments") {
  const auto schema =
      nlohmann::json::parse(config_json_schema())["properties"]["model"]["properties"]["layers"];
  CHECK(schema["type"] == "array");
  const auto& kinds = schema["items"]["anyOf"];
  REQUIRE(kinds.size() == kNamesOf<LayerType>.size() + 1);
  CHECK(kinds[0]["properties"]["Conv2d"]["required"] == nlohmann::json({"out_channels", "kernel_size"}));
  CHECK(kinds[0]["properties"]["Conv2d"]["properties"]["kernel_size"]["maximum"] == 31);
  CHECK(kinds.back()["enum"] ==
        nlohmann::json({"Linear", "LayerNorm", "BatchNorm2d", "BatchNorm1d", "ReLU", "Dropout", "Flatten"}));
}

}  // namespace dtrun::layers_test
