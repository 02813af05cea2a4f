#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/base/bits_hash.h"
#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/data/dataset_types.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/text_files.h"
#include "worker/data/tokenized_text.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kByteValues = 256;

// Files, one behind the other.
class TokenWindow {
 public:
  // An empty file adds nothing to the row.
  void add(InputFile file) {
    if (file.size() == 0) return;
    if (parts_.size() >= kMostOpenFiles) file.close();
    const std::uint64_t begin = size_;
    size_ += file.size();
    parts_.push_back({.file = std::move(file), .begin = begin});
  }

  std::uint64_t size() const { return size_; }  // bytes

  // REQUIRES: the bytes lie within the row.
  Status read(std::uint64_t offset, std::span<std::uint8_t> out) const {
    auto part = std::prev(std::ranges::upper_bound(parts_, offset, {}, &FileSpan::begin));
    while (!out.empty()) {
      const std::uint64_t at = offset - part->begin;
      const std::size_t size = std::min<std::uint64_t>(out.size(), part->file.size() - at);
      RETURN_IF_ERROR(part->file.read(at, out.first(size)));
      out = out.subspan(size);
      offset += size;
      ++part;
    }
    return Status();
  }

 private:
  struct FileSpan {
    InputFile file;
    std::uint64_t begin;  // place of its first byte in the row
  };
  std::vector<FileSpan> parts_;
  std::uint64_t size_ = 0;
};

struct SplitText {
  TokenWindow row;
  std::uint64_t begin = 0, end = 0;  // of the split
};

Result<SplitText> open_text(const DataConfig& config, Split split) {
  ASSIGN_OR_RETURN(const auto paths, text_files(config.path, config.files));
  SplitText text;
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(auto file, InputFile::open(path));
    text.row.add(std::move(file));
    Pulse::beat();
  }
  const std::uint64_t size = text.row.size();
  if (size == 0) {
    return bad_input(config.path,
                     std::string(paths.empty() ? "has no files \"" + config.files + "\"" : "is empty") +
                         "; " + install_or(config.path) +
                         "set data.path to a text, or a directory with texts");
  }
  const std::uint64_t test = test_share(size, config.test_fraction);
  text.begin = split == Split::kTrain ? 0 : size - test;
  text.end = split == Split::kTrain ? size - test : size;
  const std::uint64_t bytes = text.end - text.begin;
  RETURN_IF_ERROR(check_samples(config, split, bytes, "byte", windows_in(bytes, config.sequence_length)));
  return text;
}

class Text : public Dataset {
 public:
  Text(SplitText text, int length) : text_(std::move(text)), length_(length) {}

  std::int64_t size() const override {
    return static_cast<std::int64_t>(windows_in(text_.end - text_.begin, length_));
  }
  SampleSpec spec() const override { return window_spec(length_, kByteValues); }
  std::string values() const override { return "byte"; }
  std::uint64_t contents() const override {
    return joint_hash({text_.end - text_.begin, hash_of_some(*this)});
  }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    const auto length = static_cast<std::size_t>(length_);
    std::vector<std::uint8_t> bytes(length + 1);
    std::int32_t *tokens = rows.tokens, *targets = rows.targets;
    for (const std::uint32_t sample : samples) {
      const Status status = text_.row.read(text_.begin + sample * std::uint64_t{length}, bytes);
      if (!status.ok()) throw WorkerError(status.exit_code(), status.message());
      tokens = std::copy_n(bytes.begin(), length, tokens);
      targets = std::copy_n(bytes.begin() + 1, length, targets);
    }
  }

 private:
  SplitText text_;
  int length_;
};

}  // namespace

LoadedDataset load_text(const DataConfig& config, Split split, NodeMemory& memory) {
  if (config.tokenizer) return load_tokenized_text(config, split, memory);
  ASSIGN_OR_RETURN(auto text, open_text(config, split));
  return std::unique_ptr<Dataset>(std::make_unique<Text>(std::move(text), config.sequence_length));
}

Result<DatasetFacts> check_text(const DataConfig& config) {
  if (config.tokenizer) return check_tokenized_text(config);
  DatasetFacts facts{.spec = window_spec(config.sequence_length, kByteValues)};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    ASSIGN_OR_RETURN(const auto text, open_text(config, split));
    (split == Split::kTrain ? facts.train : facts.test) =
        static_cast<std::int64_t>(windows_in(text.end - text.begin, config.sequence_length));
  }
  return facts;
}

}  // namespace dtrun::worker
