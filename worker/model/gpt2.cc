#include <cmath>
#include <utility>

#include "proto/json/json.h"
#include "worker/base/error.h"
#include "worker/model/builder.h"
#include "worker/model/models.h"

namespace dtrun::worker {
namespace {

void check(const ModelConfig& config, const SampleSpec& sample) {
  const int tokens = static_cast<int>(sample.shape.size());
  if (tokens > config.n_positions)
    throw WorkerError(kExitConfig, "the data does not fit the model: its samples have " +
                                       std::to_string(tokens) + " tokens, and /model/n_positions is " +
                                       std::to_string(config.n_positions) +
                                       "; shorten /data/sequence_length or raise it");
  if (config.vocab_size != 0 && config.vocab_size < sample.classes)
    throw WorkerError(kExitConfig,
                      "the data does not fit the model: it has " + std::to_string(sample.classes) +
                          " different tokens, and /model/vocab_size is " + std::to_string(config.vocab_size));
}

// The config.json of transformers' GPT2LMHeadModel.
std::string hub_config(const ModelConfig& config, int vocab_size) {
  // GPT-2's own tokenizer begins and ends a text with its last token.
  constexpr int kEndOfText = 50256;
  const Json end = vocab_size > kEndOfText ? Json(kEndOfText) : nullptr;
  const Json json{{"architectures", {"GPT2LMHeadModel"}},
                  {"model_type", "gpt2"},
                  {"activation_function", "gelu_new"},
                  {"vocab_size", vocab_size},
                  {"n_positions", config.n_positions},
                  {"n_ctx", config.n_positions},
                  {"n_embd", config.n_embd},
                  {"n_layer", config.n_layer},
                  {"n_head", config.n_head},
                  {"layer_norm_epsilon", 1e-5},
                  {"resid_pdrop", config.dropout},
                  {"embd_pdrop", config.dropout},
                  {"attn_pdrop", 0.0},
                  {"initializer_range", 0.02},
                  {"bos_token_id", end},
                  {"eos_token_id", end},
                  {"tie_word_embeddings", true},
                  {"torch_dtype", "float32"}};
  return json_text(json, 2) + "\n";
}

}  // namespace

// Radford et al., "Language models are unsupervised multitask learners" (2019): names, shapes and initial
// values of Hugging Face's GPT2LMHeadModel, so that its files load here and ours load there.
Program gpt2(const ModelConfig& config, const SampleSpec& sample) {
  check(config, sample);
  const int width = config.n_embd;
  const Init normal = NormalInit{0.02f};
  // For the layers whose output is added to the residual stream, 2 * n_layer in all.
  const Init small = NormalInit{static_cast<float>(0.02 / std::sqrt(2.0 * config.n_layer))};
  ProgramBuilder net(sample);
  const int vocab_size = config.vocab_size ? config.vocab_size : sample.classes;
  Value x = net.embedding(net.input(), "wte", vocab_size, width, normal);
  x = net.dropout(net.add_positions(x, "wpe", config.n_positions, normal), config.dropout);
  for (int layer = 0; layer < config.n_layer; ++layer) {
    if (config.gradient_checkpointing) net.begin_segment();
    const std::string name = "h." + std::to_string(layer);
    Value y = net.layer_norm(x, name + ".ln_1");
    y = net.attention(net.conv1d(y, name + ".attn.c_attn", 3 * width, normal), config.n_head);
    y = net.conv1d(y, name + ".attn.c_proj", width, small);
    x = net.add(x, net.dropout(y, config.dropout));
    y = net.layer_norm(x, name + ".ln_2");
    y = net.gelu(net.conv1d(y, name + ".mlp.c_fc", 4 * width, normal));
    y = net.conv1d(y, name + ".mlp.c_proj", width, small);
    x = net.add(x, net.dropout(y, config.dropout));
  }
  net.end_segments();
  Program program = net.finish(net.tied_linear(net.layer_norm(x, "ln_f"), net.parameter("wte.weight")));
  program.hub_config = hub_config(config, vocab_size);
  return program;
}

}  // namespace dtrun::worker
