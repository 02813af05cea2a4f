// The config.json of a model of Hugging Face's transformers, read back; gpt2.cc writes it.
#pragma once

#include <string>

#include "proto/core/status.h"
#include "worker/model/program.h"

namespace dtrun::worker {

// EX_NOINPUT if it is not that of a GPT-2, EX_CONFIG for one that computes otherwise than ours.
Result<ModelConfig> gpt2_of_hub(const std::string& config_json);

// Its program for samples of n_positions tokens. REQUIRES: it has a vocab_size.
Program gpt2_program_of(const ModelConfig& gpt2);

}  // namespace dtrun::worker
