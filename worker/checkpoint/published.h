// Weights as other programs publish them (Hugging Face's hub), read as ours: in half precision, in several
// files with an index, beside tensors that are no weights.
#pragma once

#include <filesystem>
#include <string>

#include "proto/core/status.h"

namespace dtrun::worker {

// The file `from`, or in the directory `from` model.safetensors or the files that
// model.safetensors.index.json names, as one file that parse_safetensors() takes. F16 and BF16 are widened,
// which is exact. Tensors of integers and truth values (the masks of older GPT-2s) are left out: no model of
// ours has parameters of them. EX_NOINPUT.
Result<std::string> published_weights(const std::filesystem::path& from);

}  // namespace dtrun::worker
