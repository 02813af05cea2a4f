// The models by name. Each is a function that writes a program; a new one gets a file of its own and a line
// in models.cc.
#pragma once

#include "worker/model/program.h"

namespace dtrun::worker {

Program convnet(const ModelConfig& config, const SampleSpec& sample);
Program mlp(const ModelConfig& config, const SampleSpec& sample);
Program gpt2(const ModelConfig& config, const SampleSpec& sample);

}  // namespace dtrun::worker
