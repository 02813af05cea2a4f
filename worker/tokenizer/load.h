// A tokenizer from its file or files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {

// A file of a tokenizer, under the name that it has in any directory: tokenizer.json, or vocab.json and
// merges.txt.
struct TokenizerFile {
  std::string name, bytes;
  bool operator==(const TokenizerFile&) const = default;
};

struct LoadedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<TokenizerFile> files;
};

// `path`: a tokenizer.json, a vocab.json that has its merges.txt beside it, or a directory with either.
// Failures have EX_NOINPUT and name the file.
Result<LoadedTokenizer> load_tokenizer(const std::filesystem::path& path);

// Whether a directory has a tokenizer that load_tokenizer would take.
bool has_tokenizer(const std::filesystem::path& directory);

// The files of the directory's tokenizer, read but not parsed; none if it has no tokenizer.
std::vector<TokenizerFile> tokenizer_files_in(const std::filesystem::path& directory);

}  // namespace dtrun::worker
