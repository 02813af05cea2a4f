#include "worker/data/tokenized_text.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "worker/base/error.h"
#include "worker/base/pulse.h"
#include "worker/data/data_tokenizer.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/node_memory.h"
#include "worker/data/text_files.h"
#include "worker/data/text_pieces.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

class TokenizedText : public Dataset {
 public:
  TokenizedText(HeldBytes tokens, int length, int classes)
      : memory_(std::move(tokens.memory)),
        hash_(tokens.hash),
        tokens_(reinterpret_cast<const std::int32_t*>(tokens.bytes.data()),
                tokens.bytes.size() / sizeof(std::int32_t)),
        length_(length),
        classes_(classes) {}

  std::int64_t size() const override {
    return static_cast<std::int64_t>(windows_in(tokens_.size(), length_));
  }
  SampleSpec spec() const override { return window_spec(length_, classes_); }
  std::string values() const override { return "token"; }
  std::uint64_t contents() const override { return hash_; }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    std::int32_t *tokens = rows.tokens, *targets = rows.targets;
    for (const std::uint32_t sample : samples) {
      const std::int32_t* from = tokens_.data() + sample * static_cast<std::size_t>(length_);
      tokens = std::copy_n(from, length_, tokens);
      targets = std::copy_n(from + 1, length_, targets);
    }
  }

 private:
  const std::shared_ptr<const void> memory_;
  const std::uint64_t hash_;
  const std::span<const std::int32_t> tokens_;
  const int length_, classes_;
};

// About right for English text.
constexpr std::uint64_t kBytesOfToken = 4;

// A part of a file.
struct Stretch {
  InputFile file;
  std::uint64_t begin = 0, end = 0;
};

// The stretches of a split.
Result<std::vector<Stretch>> stretches_of(const DataConfig& config, const std::vector<fs::path>& paths,
                                          Split split, Encoder& encoder) {
  std::vector<Stretch> all;
  std::uint64_t size = 0;
  for (const auto& path : paths) {
    ASSIGN_OR_RETURN(auto file, InputFile::open(path));
    Pulse::beat();
    if (all.size() >= kMostOpenFiles) file.close();
    const std::uint64_t bytes = file.size();
    size += bytes;
    if (bytes > 0) all.push_back({.file = std::move(file), .begin = 0, .end = bytes});
  }
  if (all.empty()) {
    return bad_input(config.path,
                     std::string(paths.empty() ? "has no files \"" + config.files + "\"" : "is empty") +
                         "; set data.path to a text, or a directory with texts");
  }
  if (size > kLargestTokenizedText) {
    return bad_input(config.path,
                     "has " + with_thousands(size) + " bytes, more than the " +
                         with_thousands(kLargestTokenizedText) +
                         " that a job makes tokens of at its start; make them once with `dtrun prepare`, "
                         "and set data.type to \"tokens\"");
  }
  std::uint64_t place = size - test_share(size, config.test_fraction);
  std::vector<Stretch> found;
  for (Stretch& one : all) {
    const std::uint64_t bytes = one.end;
    // The byte at which the test split begins in this file.
    std::uint64_t cut = bytes;
    if (place < bytes) {
      ASSIGN_OR_RETURN(cut, place == 0 ? Result<std::uint64_t>(0) : cut_behind(one.file, place, encoder));
    }
    place -= std::min(place, bytes);
    (split == Split::kTrain ? one.end : one.begin) = cut;
    if (one.begin < one.end) found.push_back(std::move(one));
  }
  return found;
}

Result<std::vector<std::int32_t>> tokens_of(const std::vector<Stretch>& stretches, const Tokenizer& tokenizer,
                                            Encoder& encoder) {
  std::vector<std::int32_t> tokens;
  const auto end_of_text = tokenizer.id_of(kEndOfText);
  for (const Stretch& stretch : stretches) {
    if (end_of_text && stretch.begin == 0) tokens.push_back(*end_of_text);
    TextPieces pieces(stretch.file, stretch.begin, stretch.end, encoder);
    for (bool begins = stretch.begin == 0;; begins = false) {
      ASSIGN_OR_RETURN(const auto piece, pieces.next());
      if (!piece) break;
      encoder.encode(*piece, begins, tokens);
    }
  }
  return tokens;
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_tokenized_text(const DataConfig& config, Split split,
                                                     NodeMemory& memory) {
  ASSIGN_OR_RETURN(const auto loaded, tokenizer_of(config));
  const Tokenizer& tokenizer = *loaded->tokenizer;
  ASSIGN_OR_RETURN(const auto paths, text_files(config.path, config.files));
  std::string what = split == Split::kTrain ? "tokens to train on" : "tokens to test with";
  for (const TokenizerFile& file : loaded->files) what += file.bytes;
  ASSIGN_OR_RETURN(auto held, memory.bytes_of(what, paths, [&](const Room& room) -> Status {
    Encoder encoder(tokenizer);
    ASSIGN_OR_RETURN(const auto stretches, stretches_of(config, paths, split, encoder));
    ASSIGN_OR_RETURN(const auto tokens, tokens_of(stretches, tokenizer, encoder));
    RETURN_IF_ERROR(check_samples(config, split, tokens.size(), "token",
                                  windows_in(tokens.size(), config.sequence_length)));
    const auto bytes = std::as_bytes(std::span(tokens));
    std::ranges::copy(bytes, std::as_writable_bytes(room(bytes.size())).begin());
    return Status();
  }));
  return std::unique_ptr<Dataset>(
      std::make_unique<TokenizedText>(std::move(held), config.sequence_length, tokenizer.size()));
}

Result<DatasetFacts> check_tokenized_text(const DataConfig& config) {
  ASSIGN_OR_RETURN(const auto loaded, tokenizer_of(config));
  const Tokenizer& tokenizer = *loaded->tokenizer;
  Encoder encoder(tokenizer);
  ASSIGN_OR_RETURN(const auto paths, text_files(config.path, config.files));
  DatasetFacts facts{.spec = window_spec(config.sequence_length, tokenizer.size())};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    ASSIGN_OR_RETURN(const auto stretches, stretches_of(config, paths, split, encoder));
    std::uint64_t bytes = 0;
    for (const Stretch& stretch : stretches) bytes += stretch.end - stretch.begin;
    const std::uint64_t tokens = bytes / kBytesOfToken;
    (split == Split::kTrain ? facts.train : facts.test) =
        static_cast<std::int64_t>(windows_in(tokens, config.sequence_length));
    facts.bytes += tokens * sizeof(std::int32_t);
  }
  return facts;
}

}  // namespace dtrun::worker
