// A GPT-2 as a GGUF file, with its matrices as small integers. Functions of values.
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

// model.gguf. `shape`: a gpt2 with its vocab_size (worker/model/hub.h). `how`: none for fp32. `tokenizer`:
// the run's; null: its tokens are the 256 bytes, or have no names.
std::string gpt2_gguf(const ModelConfig& shape, const std::vector<float>& flat,
                      std::optional<Quantization> how, const Tokenizer* tokenizer);

}  // namespace dtrun::worker
