#include "worker/model/builder.h"
#include "worker/model/models.h"

namespace dtrun::worker {

// fc1, fc2, …: linear layers, each but the last followed by the activation and dropout.
Program mlp(const ModelConfig& config, const SampleSpec& sample) {
  ProgramBuilder net(sample);
  Value x = net.flatten(net.input());
  int layer = 1;
  for (const int size : config.hidden_sizes) {
    x = net.linear(x, "fc" + std::to_string(layer++), size);
    x = config.activation == ActivationType::kGelu ? net.gelu(x) : net.relu(x);
    x = net.dropout(x, config.dropout);
  }
  return net.finish(net.linear(x, "fc" + std::to_string(layer), sample.classes));
}

}  // namespace dtrun::worker
