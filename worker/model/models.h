// The models by name. Each is a function that writes a program; a new one gets a file of its own and a line
// in models.cc.
#pragma once

#include <vector>

#include "worker/model/program.h"

namespace dtrun::worker {

// The layers, which faults call by their names. Throws WorkerError (EX_CONFIG) with that of a layer that does
// not fit the sample.
Program named_layers(const std::vector<Layer>& layers, const SampleSpec& sample);

Program convnet(const ModelConfig& config, const SampleSpec& sample);
Program resnet(const ModelConfig& config, const SampleSpec& sample);
Program mlp(const ModelConfig& config, const SampleSpec& sample);
Program gpt2(const ModelConfig& config, const SampleSpec& sample);
Program layers(const ModelConfig& config, const SampleSpec& sample);

}  // namespace dtrun::worker
