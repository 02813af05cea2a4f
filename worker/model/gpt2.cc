#include <cmath>

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
                                       std::to_string(config.n_positions));
  if (config.vocab_size != 0 && config.vocab_size < sample.classes)
    throw WorkerError(kExitConfig,
                      "the data does not fit the model: it has " + std::to_string(sample.classes) +
                          " different tokens, and /model/vocab_size is " + std::to_string(config.vocab_size));
}

}  // namespace

// Radford et al., "Language models are unsupervised multitask learners" (2019): names, shapes and initial
// values of Hugging Face's GPT2LMHeadModel, so that its files are ours.
Program gpt2(const ModelConfig& config, const SampleSpec& sample) {
  check(config, sample);
  const int width = config.n_embd;
  const Init normal = NormalInit{0.02f};
  // Of what is added to the residual stream 2 * n_layer times.
  const Init small = NormalInit{static_cast<float>(0.02 / std::sqrt(2.0 * config.n_layer))};
  ProgramBuilder net(sample);
  Value x = net.embedding(net.input(), "wte", config.vocab_size ? config.vocab_size : sample.classes, width,
                          normal);
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
  return net.finish(net.tied_linear(net.layer_norm(x, "ln_f"), net.parameter("wte.weight")));
}

}  // namespace dtrun::worker
