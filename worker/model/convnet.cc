#include "worker/model/builder.h"
#include "worker/model/models.h"

namespace dtrun::worker {

// The network of the PyTorch MNIST examples.
Program convnet(const ModelConfig&, const SampleSpec& sample) {
  ProgramBuilder net(sample);
  Value x = net.input();
  x = net.max_pool(net.relu(net.conv(x, "conv1", 20, 5)), 2);
  x = net.max_pool(net.relu(net.conv(x, "conv2", 20, 5)), 2);
  x = net.relu(net.linear(net.flatten(x), "fc1", 50));
  return net.finish(net.linear(x, "fc2", sample.classes));
}

}  // namespace dtrun::worker
