#include "worker/prepare/shard_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "worker/base/error.h"
#include "worker/data/tokens.h"

namespace dtrun::worker {
namespace {

constexpr std::size_t kBuffer = std::size_t{4} << 20;

}  // namespace

ShardWriter::ShardWriter(std::filesystem::path directory, std::string name, int first,
                         std::uint64_t shard_tokens)
    : directory_(std::move(directory)), name_(std::move(name)), first_(first), shard_tokens_(shard_tokens) {}

void ShardWriter::add(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    if (!descriptor_.open()) open_next();
    const std::size_t room = std::min<std::uint64_t>(shard_tokens_ - in_shard_, ids.size());
    for (const std::int32_t id : ids.first(room)) {
      buffer_.push_back(static_cast<char>(id & 0xff));
      buffer_.push_back(static_cast<char>(id >> 8));
    }
    ids = ids.subspan(room);
    in_shard_ += room;
    tokens_ += room;
    if (buffer_.size() >= kBuffer) flush();
    if (in_shard_ == shard_tokens_) close_shard();
  }
}

void ShardWriter::finish() {
  if (descriptor_.open()) close_shard();
}

void ShardWriter::open_next() {
  std::array<char, 16> number{};
  std::snprintf(number.data(), number.size(), "%06d", first_ + shards_);
  path_ = directory_ / (name_ + "_" + number.data() + ".bin");
  descriptor_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!descriptor_.open()) throw cannot_write("cannot create " + path_.string(), errno, "another directory");
  ++shards_;
  in_shard_ = 0;
  buffer_.assign(kTokenHeader, '\0');
  written_ = 0;
}

void ShardWriter::flush() {
  write(buffer_.data(), buffer_.size(), written_);
  written_ += buffer_.size();
  buffer_.clear();
}

void ShardWriter::close_shard() {
  flush();
  const std::string header = token_header(in_shard_);
  write(header.data(), header.size(), 0);
  if (::fsync(descriptor_.get()) != 0)
    throw cannot_write("cannot sync " + path_.string(), errno, "another directory");
  descriptor_.reset();
}

void ShardWriter::write(const char* bytes, std::size_t size, std::uint64_t at) {
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_.get(), bytes, size, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw cannot_write("cannot write " + path_.string(), errno, "another directory");
    bytes += written;
    size -= static_cast<std::size_t>(written);
    at += static_cast<std::uint64_t>(written);
  }
}

}  // namespace dtrun::worker
