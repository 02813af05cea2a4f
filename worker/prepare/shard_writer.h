// Token files as llm.c writes them: NAME_SPLIT_000001.bin and so on, each but the last with the same number
// of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "proto/base/descriptor.h"

namespace dtrun::worker {

class ShardWriter {
 public:
  // Writes to `directory`, from the number `first` on. A file is created with its first token.
  ShardWriter(std::filesystem::path directory, std::string name, int first, std::uint64_t shard_tokens);

  // Throws WorkerError (EX_IOERR, EX_CANTCREAT). REQUIRES: the ids are below 65,536.
  void add(std::span<const std::int32_t> ids);
  // Writes and syncs the rest. Throws as add() does.
  void finish();

  std::uint64_t tokens() const { return tokens_; }
  int shards() const { return shards_; }

 private:
  void open_next();
  void flush();
  void close_shard();
  void write(const char* bytes, std::size_t size, std::uint64_t at);

  const std::filesystem::path directory_;
  const std::string name_;
  const int first_;
  const std::uint64_t shard_tokens_;
  std::filesystem::path path_;  // of the current shard
  Descriptor descriptor_;
  std::uint64_t in_shard_ = 0, tokens_ = 0;
  std::uint64_t written_ = 0;  // bytes of the shard that are in the file
  int shards_ = 0;
  std::vector<char> buffer_;
};

}  // namespace dtrun::worker
