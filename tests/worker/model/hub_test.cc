// The config.json of a GPT-2 from Hugging Face.
#include "worker/model/hub.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/worker/model/programs.h"

namespace dtrun::worker::hub_test {
namespace {

using Json = nlohmann::ordered_json;

std::string fault_of(const std::string& config) {
  const Result<ModelConfig> read = gpt2_of_hub(config);
  return read.ok() ? "" : read.status().message();
}

TEST_CASE("what gpt2.cc writes is read back, and any other GPT-2 is refused by the key that differs") {
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  const Result<ModelConfig> back = gpt2_of_hub(program.hub_config);
  REQUIRE(back.ok());
  const Program again = gpt2_program_of(back.value());
  CHECK(again.hub_config == program.hub_config);
  CHECK(again.size == program.size);
  const auto with = [&](const char* key, const Json& value) {
    Json json = Json::parse(program.hub_config);
    json[key] = value;
    return fault_of(json.dump());
  };
  CHECK(with("n_inner", 32).empty());
  CHECK(with("n_inner", 33) == "its \"n_inner\" is 33, and dtrun's GPT-2 has 4 * n_embd");
  CHECK(with("activation_function", "relu") ==
        "its \"activation_function\" is \"relu\", and dtrun's GPT-2 has \"gelu_new\"");
  CHECK(with("tie_word_embeddings", false) ==
        "its \"tie_word_embeddings\" is false, and dtrun's GPT-2 has true");
  CHECK(with("n_head", 3) == "its \"n_head\" is no size of a GPT-2");
  for (const char* key : {"n_layer", "n_embd", "n_positions", "vocab_size"})
    for (const Json& value : {Json(), Json("7"), Json(-1), Json(0), Json(1e9), Json(1LL << 40)})
      CHECK(with(key, value) == "its \"" + std::string(key) + "\" is no size of a GPT-2");
  for (const char* text : {"", "[]", "{}", "{\"model_type\": \"llama\"}", "{\"model_type\": 3}"})
    CHECK(fault_of(text) == "is not the config of a GPT-2");
}

}  // namespace
}  // namespace dtrun::worker::hub_test
