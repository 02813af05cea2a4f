#include <string>

#include "worker/model/builder.h"
#include "worker/model/models.h"

namespace dtrun::worker {

// By default the network of the PyTorch MNIST examples.
Program convnet(const ModelConfig& config, const SampleSpec& sample) {
  ProgramBuilder net(sample);
  Value x = net.input();
  for (std::size_t i = 0; i < config.channels.size(); ++i) {
    const std::string name = "conv" + std::to_string(i + 1);
    x = net.max_pool(net.relu(net.conv(x, name, config.channels[i], config.kernel_size)), 2);
  }
  x = net.relu(net.linear(net.flatten(x), "fc1", 50));
  return net.finish(net.linear(x, "fc2", sample.classes));
}

}  // namespace dtrun::worker
