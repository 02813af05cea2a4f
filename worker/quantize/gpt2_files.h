// A GPT-2 in files for other programs, with the matrices as small integers. Functions of values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/model/program.h"
#include "worker/quantize/blocks.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {

// EX_CONFIG where the rows of a matrix are no whole blocks.
Status check_blocks(const Program& program, Quantization how);

// model.gguf. `shape`: a gpt2 with its vocab_size (worker/model/hub.h). `how`: a type of GGUF's, or none for
// fp32. `tokenizer`: the run's; null: its tokens are the 256 bytes, or have no names.
std::string gpt2_gguf(const ModelConfig& shape, const std::vector<float>& flat,
                      std::optional<Quantization> how, const Tokenizer* tokenizer);

// model.safetensors and config.json in compressed-tensors' "pack-quantized". They are of an OPT, which
// computes what a GPT-2 does once its activation is gelu_new: its matrices are torch.nn.Linear, the only
// module that compressed-tensors quantizes, where transformers' GPT-2 has a Conv1D of its own.
struct PackedFiles {
  std::string model, config;
};
PackedFiles gpt2_packed(const ModelConfig& shape, const std::vector<float>& flat, Quantization how,
                        const std::string& hub_config);

}  // namespace dtrun::worker
