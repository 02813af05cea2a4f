// The two safetensors files of a checkpoint as a program sees them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/safetensors.h"

namespace dtrun::worker {

// Tensors of model.safetensors, and of optimizer.safetensors: "momentum_buffer.conv1.weight".
std::vector<Tensor> model_tensors(const Program& program);
std::vector<Tensor> optimizer_tensors(const Program& program, const std::vector<OptimizerSlot>& slots);

// What the names of a file of Hugging Face's GPT2LMHeadModel begin with: "transformer.", or "".
std::string prefix_in(const Safetensors& file);

// Takes every parameter's tensor, named with this prefix, into a flat vector; other tensors are passed over.
// Returns a text for each parameter that has no tensor of its shape: `flat` keeps the values that it has.
std::vector<std::string> take_parameters(const Safetensors& file, const Program& program,
                                         const std::string& prefix, std::span<float> flat);

// A flat vector of all of them. EX_CONFIG if one is missing.
Result<std::vector<float>> parameter_values(const Safetensors& file, const Program& program,
                                            const std::string& prefix);

// The tensors as flat vectors. EX_CONFIG if the file's tensors are not those of the program.
Result<std::vector<float>> model_values(const Safetensors& file, const Program& program);
Result<std::vector<OptimizerSlot>> optimizer_values(const Safetensors& file, const Program& program);

}  // namespace dtrun::worker
