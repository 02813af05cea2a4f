#include "worker/checkpoint/keep_tokenizer.h"

#include <filesystem>
#include <string_view>

#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"
#include "worker/data/data_tokenizer.h"

namespace dtrun::worker {

void keep_tokenizer(const JobConfig& config, bool goes_on) {
  const auto loaded = value_or_throw(tokenizer_of(config.data));
  if (!loaded) return;
  const std::filesystem::path directory = config.output_dir;
  const std::vector<TokenizerFile> kept = tokenizer_files_in(directory);
  const std::vector<TokenizerFile>& files = loaded->files;
  if (kept == files) return;
  if (goes_on && !kept.empty()) {
    throw WorkerError(kExitConfig, "the data's tokenizer is not the one that this run began with, " +
                                       (directory / kept.front().name).string() +
                                       "; set data.tokenizer to that, or choose another output_dir");
  }
  // An earlier run's tokenizer must not be taken for this run's.
  std::error_code ignored;
  for (const TokenizerFile& file : kept) std::filesystem::remove(directory / file.name, ignored);
  for (const TokenizerFile& file : files) {
    const std::string_view bytes = file.bytes;
    replace_file(directory / file.name, {&bytes, 1});
  }
}

}  // namespace dtrun::worker
