#include "worker/model/hub.h"

#include <utility>

#include "proto/json/json.h"

namespace dtrun::worker {
namespace {

Status no_size(const std::string& name) {
  return Status(kExitNoInput, "its \"" + name + "\" is no size of a GPT-2");
}

}  // namespace

Result<ModelConfig> gpt2_of_hub(const std::string& config_json) {
  const Json json = parse_json(config_json);
  if (!json.is_object() || json.value("model_type", Json()) != "gpt2")
    return Status(kExitNoInput, "is not the config of a GPT-2");
  ModelConfig gpt2{.type = ModelType::kGpt2};
  for (const auto& [name, field] : {std::pair{"n_layer", &gpt2.n_layer},
                                    {"n_head", &gpt2.n_head},
                                    {"n_embd", &gpt2.n_embd},
                                    {"n_positions", &gpt2.n_positions},
                                    {"vocab_size", &gpt2.vocab_size}}) {
    const Json value = json.value(name, Json());
    if (!value.is_number_integer() || value < 1 || value > (1 << 21)) return no_size(name);
    *field = value.get<int>();
  }
  if (gpt2.n_embd % gpt2.n_head != 0) return no_size("n_head");
  if (gpt2.vocab_size < 2) return no_size("vocab_size");
  for (const auto& [name, ours] : {std::pair<const char*, Json>{"activation_function", "gelu_new"},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"tie_word_embeddings", true},
                                   {"scale_attn_weights", true},
                                   {"scale_attn_by_inverse_layer_idx", false}}) {
    const Json value = json.value(name, ours);
    if (value != ours)
      return Status(kExitConfig, "its \"" + std::string(name) + "\" is " + json_text(value) +
                                     ", and dtrun's GPT-2 has " + json_text(ours));
  }
  const Json inner = json.value("n_inner", Json());
  if (!inner.is_null() && inner != 4 * gpt2.n_embd)
    return Status(kExitConfig,
                  "its \"n_inner\" is " + json_text(inner) + ", and dtrun's GPT-2 has 4 * n_embd");
  return gpt2;
}

Program gpt2_program_of(const ModelConfig& gpt2) {
  return make_program(gpt2, {.input = SampleSpec::Input::kTokens,
                             .shape = {1, 1, gpt2.n_positions},
                             .targets = gpt2.n_positions,
                             .classes = gpt2.vocab_size});
}

}  // namespace dtrun::worker
