// A trained model for other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker/config/choices.h"

namespace dtrun::worker {

struct Exported {
  std::filesystem::path source;  // the model.safetensors that was taken
  std::filesystem::path directory;
  std::vector<std::string> files;  // names of the files written there
};

enum class ExportFormat : std::uint8_t { kHf, kGguf };

struct ExportAs {
  ExportFormat format = ExportFormat::kHf;
  std::optional<Quantization> quantize = {};  // none: fp32
};

// Writes the model of `run` (an output_dir or a checkpoint) to `directory`: as Hugging Face's transformers
// reads it, with the run's tokenizer if it has one, or as one model.gguf. Each file exists whole or not at
// all. Throws WorkerError: EX_NOINPUT if there is no model or it is damaged, EX_CONFIG if the format has no
// such model or cannot hold it in these integers, EX_IOERR or EX_CANTCREAT for the directory, which must not
// be that of a run. Nothing is written before these checks. REQUIRES: without kGguf no `quantize`.
Exported export_model(const std::filesystem::path& run, const std::filesystem::path& directory,
                      const ExportAs& as = {});

}  // namespace dtrun::worker
