#include "worker/trainer/replica.h"

#include "worker/base/error.h"

namespace dtrun::worker {
namespace {

Network network_for(const ModelConfig& config, const Dataset& data) {
  Network network = make_network(config, data.shape(), data.classes());
  network.input_values = data.values();
  return network;
}

}  // namespace

Datasets load_datasets(const JobConfig& config) {
  Datasets data{load_dataset(config.data, Split::kTrain), load_dataset(config.data, Split::kTest)};
  if (data.train->shape() == data.test->shape() && data.train->classes() == data.test->classes()) return data;
  throw WorkerError(kExitNoInput,
                    config.data.path +
                        ": its test samples have another shape or other classes than those "
                        "it trains on; set data.path to a data set whose parts belong together");
}

Replica::Replica(const JobConfig& config, const Datasets& data, int lanes)
    : config(config),
      data(data),
      network(network_for(config.model, *data.train)),
      device(make_cpu_device()),
      lanes(*device, network, lanes, config.train.micro_batch_size),
      optimizer(make_optimizer(config.train)) {
  state.optimizer = optimizer->zero_slots(network.size);
}

}  // namespace dtrun::worker
