// A trained model for other programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dtrun::worker {

struct Exported {
  std::filesystem::path source;  // the model.safetensors that was taken
  std::filesystem::path directory;
  std::vector<std::string> files;  // names of the files written there
};

// Writes the model of `run` (an output_dir or a checkpoint) to `directory` as Hugging Face's transformers
// reads it, with the run's tokenizer if it has one. Each file exists whole or not at all. Throws WorkerError:
// EX_NOINPUT if there is no model or it is damaged, EX_CONFIG if transformers has no such model, EX_IOERR or
// EX_CANTCREAT for the directory, which must not be that of a run. Nothing is written before these checks.
Exported export_model(const std::filesystem::path& run, const std::filesystem::path& directory);

}  // namespace dtrun::worker
