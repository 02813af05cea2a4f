#include "worker/tokenizer/load.h"

#include "proto/base/text_in.h"
#include "worker/base/error.h"
#include "worker/tokenizer/parse.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kTokenizerJson[] = "tokenizer.json", kVocabJson[] = "vocab.json", kMergesTxt[] = "merges.txt";
constexpr std::uintmax_t kLargestFile = std::uintmax_t{256} << 20;

Status bad_tokenizer(const fs::path& path, const std::string& fault) {
  return Status(kExitNoInput, path.string() + ": " + fault);
}

Result<std::string> read_whole(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    return bad_tokenizer(path, "is no file; name a tokenizer.json, or a directory with one");
  if (const auto size = fs::file_size(path, error); !error && size > kLargestFile)
    return bad_tokenizer(path, "is larger than any tokenizer; name a tokenizer.json");
  return read_text(path);
}

Result<LoadedTokenizer> made(const Result<TokenizerSpec>& spec, std::vector<TokenizerFile> files,
                             const fs::path& path) {
  if (!spec.ok()) return spec.status().within(path.string());
  return LoadedTokenizer{.tokenizer = std::make_shared<const Tokenizer>(spec.value()),
                         .files = std::move(files)};
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Result<LoadedTokenizer> load_file(const fs::path& path) {
  ASSIGN_OR_RETURN(auto text, read_whole(path));
  if (path.filename() != kVocabJson) {
    const auto spec = parse_tokenizer_json(text);
    return made(spec, {{kTokenizerJson, std::move(text)}}, path);
  }
  ASSIGN_OR_RETURN(auto merges, read_whole(path.parent_path() / kMergesTxt));
  const auto spec = parse_vocab_and_merges(text, merges);
  return made(spec, {{kVocabJson, std::move(text)}, {kMergesTxt, std::move(merges)}}, path);
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return is_there(directory / kTokenizerJson) ||
         (is_there(directory / kVocabJson) && is_there(directory / kMergesTxt));
}

Result<LoadedTokenizer> load_tokenizer(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return load_file(path);
  if (is_there(path / kTokenizerJson)) return load_file(path / kTokenizerJson);
  if (is_there(path / kVocabJson)) return load_file(path / kVocabJson);
  return bad_tokenizer(path, "has neither a tokenizer.json nor a vocab.json with merges.txt");
}

std::vector<TokenizerFile> tokenizer_files_in(const fs::path& directory) {
  std::vector<TokenizerFile> files;
  if (!has_tokenizer(directory)) return files;
  const bool whole = is_there(directory / kTokenizerJson);
  for (const char* name : {kTokenizerJson, kVocabJson, kMergesTxt}) {
    if ((name == kTokenizerJson) != whole) continue;
    files.push_back({.name = name, .bytes = value_or_throw(read_whole(directory / name))});
  }
  return files;
}

}  // namespace dtrun::worker
