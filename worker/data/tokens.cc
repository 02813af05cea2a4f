#include "worker/data/tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/utf8.h"
#include "worker/base/bits_hash.h"
#include "worker/base/error.h"
#include "worker/data/data_tokenizer.h"
#include "worker/data/dataset_types.h"
#include "worker/data/input_file.h"
#include "worker/data/message.h"
#include "worker/data/windows.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMagic = 20240520, kVersion = 1;
// The other files that the same scripts write, and that look alike.
constexpr std::uint32_t kMagicLlama3 = 20240801, kMagicEvaluation = 20240522, kMagicModel = 20240326;

Status no_tokens(const std::string& what) { return Status(kExitNoInput, what); }

std::uint32_t little_endian32(std::span<const std::uint8_t> bytes, std::size_t word) {
  const std::uint8_t* at = bytes.data() + 4 * word;
  return at[0] | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

// Bytes of text, and words of 32 bits, that are enough to tell a file's kind by.
constexpr std::size_t kEnoughText = 32, kEnoughWords = 16;

bool is_text(std::string_view bytes) {
  const std::optional<std::size_t> fault = invalid_utf8_at(bytes);
  if (fault && *fault + 4 < bytes.size()) return false;  // the last character may be cut
  return std::ranges::none_of(bytes, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f') || byte == 0x7f;
  });
}

std::int32_t token_at(const std::uint8_t* bytes, std::size_t index) {
  return bytes[2 * index] | bytes[2 * index + 1] << 8;
}

Status check_magic_of_others(std::uint32_t magic) {
  const std::string begins = "begins with " + std::to_string(magic) + ": ";
  if (magic == kMagicLlama3) {
    return no_tokens(begins +
                     "llm.c's 32-bit tokens of Llama 3, where 16-bit tokens are expected; write the "
                     "file with the GPT-2 tokenizer");
  }
  if (magic == kMagicEvaluation)
    return no_tokens(begins + "llm.c's multiple-choice questions, not tokens; take it out of data.path");
  if (magic == kMagicModel) return no_tokens(begins + "llm.c's model, not tokens; take it out of data.path");
  return Status();
}

// ---- which files

bool has_word(const fs::path& path, std::string_view word) {
  return path.filename().string().find(word) != std::string::npos;
}

bool is_for_test(const fs::path& path) { return has_word(path, "val") || has_word(path, "test"); }

constexpr char kNames[] = " in its name, as train.bin or fineweb_val_000000.bin have";

// The .bin files of a split, in name order.
Result<std::vector<fs::path>> shard_paths(const fs::path& directory, Split split) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".bin" || path.filename().string().starts_with('.')) continue;
    const bool train = has_word(path, "train"), test = is_for_test(path);
    if (train == test) {
      return bad_input(path, std::string("has ") + (train ? "both" : "none") +
                                 " of \"train\" and \"val\" (or \"test\")" + kNames +
                                 ": which split is it for? Rename it or take it out of data.path");
    }
    if (test == (split == Split::kTest)) paths.push_back(path);
  }
  if (error) return bad_input(directory, "cannot be read: " + error.message());
  std::ranges::sort(paths);
  if (!paths.empty()) return paths;
  const std::string word = split == Split::kTrain ? "\"train\"" : "\"val\" or \"test\"";
  return bad_input(directory, "has no .bin file with " + word + kNames +
                                  "; set data.path to the directory with the shards, or to one file");
}

// ---- shards

// A file, or a part of one, that samples are cut from.
struct Shard {
  InputFile file;
  TokenLayout layout;          // of the part
  std::uint64_t position = 0;  // number of the part's first token in the whole file
  std::uint64_t first_sample = 0;

  Status read(std::uint64_t token, std::span<std::uint8_t> out) const {
    return file.read(layout.begin + 2 * token, out);
  }
};

Result<Shard> open_shard(const fs::path& path) {
  ASSIGN_OR_RETURN(auto file, InputFile::open(path));
  std::array<std::uint8_t, kTokenHeader> beginning;
  const std::span<std::uint8_t> have =
      std::span(beginning).first(std::min<std::uint64_t>(beginning.size(), file.size()));
  RETURN_IF_ERROR(file.read(0, have));
  const auto layout = parse_token_header(have, file.size());
  if (!layout.ok()) return layout.status().within(path.string());
  return Shard{.file = std::move(file), .layout = layout.value()};
}

// REQUIRES: the shard is of a file that has both splits; its end is the test split.
void cut_to_split(Shard& shard, double test_fraction, Split split) {
  TokenLayout& all = shard.layout;
  const std::uint64_t test = test_share(all.tokens, test_fraction), train = all.tokens - test;
  shard.position = split == Split::kTrain ? 0 : train;
  all = {.begin = all.begin + 2 * shard.position, .tokens = split == Split::kTrain ? train : test};
}

Result<std::vector<Shard>> open_split(const DataConfig& config, Split split) {
  std::error_code error;
  const bool one_file = !fs::is_directory(config.path, error);
  std::vector<fs::path> paths{config.path};
  if (!one_file) {
    ASSIGN_OR_RETURN(paths, shard_paths(config.path, split));
  }
  std::vector<Shard> shards;
  std::uint64_t samples = 0, tokens = 0;
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(auto shard, open_shard(path));
    if (one_file) cut_to_split(shard, config.test_fraction, split);
    shard.first_sample = samples;
    tokens += shard.layout.tokens;
    samples += windows_in(shard.layout.tokens, config.sequence_length);
    if (shards.size() >= kMostOpenFiles) shard.file.close();
    shards.push_back(std::move(shard));
  }
  RETURN_IF_ERROR(check_samples(config, split, tokens, "token", samples, " in any file"));
  return shards;
}

// ---- tokens

Status out_of_range(const Shard& shard, std::uint64_t token, std::int32_t value, int vocab_size) {
  return bad_input(shard.file.path(),
                   "token " + std::to_string(value) + " at position " +
                       with_thousands(shard.position + token) + " is not below data.vocab_size " +
                       std::to_string(vocab_size) +
                       "; set it to that of the file's tokenizer, or write the file again");
}

// `bytes`: the tokens from number `first` of the shard on.
Status check_tokens_of(const Shard& shard, std::uint64_t first, std::span<const std::uint8_t> bytes,
                       int vocab_size) {
  for (std::size_t i = 0; i < bytes.size() / 2; ++i) {
    const std::int32_t value = token_at(bytes.data(), i);
    if (value >= vocab_size) return out_of_range(shard, first + i, value, vocab_size);
  }
  return Status();
}

class Tokens : public Dataset {
 public:
  Tokens(std::vector<Shard> shards, const DataConfig& config)
      : shards_(std::move(shards)), length_(config.sequence_length), vocab_size_(config.vocab_size) {}

  std::int64_t size() const override {
    const Shard& last = shards_.back();
    return static_cast<std::int64_t>(last.first_sample + windows_in(last.layout.tokens, length_));
  }
  SampleSpec spec() const override { return window_spec(length_, vocab_size_); }
  std::string values() const override { return "token"; }
  std::uint64_t contents() const override {
    std::uint64_t sizes = 0;
    for (const Shard& shard : shards_) sizes = joint_hash({sizes, shard.layout.tokens});
    return joint_hash({sizes, hash_of_some(*this)});
  }

  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    const auto length = static_cast<std::size_t>(length_);
    std::vector<std::uint8_t> bytes(2 * (length + 1));
    std::int32_t *tokens = rows.tokens, *targets = rows.targets;
    for (const std::uint32_t sample : samples) {
      read(sample, bytes);
      for (std::size_t i = 0; i < length; ++i) {
        tokens[i] = token_at(bytes.data(), i);
        targets[i] = token_at(bytes.data(), i + 1);
      }
      tokens += length;
      targets += length;
    }
  }

 private:
  void read(std::uint32_t sample, std::span<std::uint8_t> bytes) const {
    // The last shard that begins at or before the sample: those without samples begin where the next does.
    const Shard& shard =
        *std::prev(std::ranges::upper_bound(shards_, std::uint64_t{sample}, {}, &Shard::first_sample));
    const std::uint64_t first = (sample - shard.first_sample) * static_cast<std::uint64_t>(length_);
    Status status = shard.read(first, bytes);
    if (status.ok()) status = check_tokens_of(shard, first, bytes, vocab_size_);
    if (!status.ok()) throw WorkerError(status.exit_code(), status.message());
  }

  std::vector<Shard> shards_;  // in the order of their samples; not empty
  int length_, vocab_size_;
};

}  // namespace

Result<TokenLayout> parse_token_header(std::span<const std::uint8_t> beginning, std::uint64_t size) {
  if (size == 0) return no_tokens("is empty; write the file again");
  const std::uint32_t magic = beginning.size() >= 4 ? little_endian32(beginning, 0) : 0;
  RETURN_IF_ERROR(check_magic_of_others(magic));
  if (magic != kMagic) {
    if (size % 2 == 0) return TokenLayout{.begin = 0, .tokens = size / 2};
    return no_tokens("has " + with_thousands(size) +
                     " bytes, which is no whole number of 16-bit tokens: truncated, or not a file of tokens; "
                     "check data.path, or write the file again");
  }
  if (beginning.size() < kTokenHeader) {
    return no_tokens("ends within its header, after " + with_thousands(size) + " of " +
                     with_thousands(kTokenHeader) + " bytes: truncated; write the file again");
  }
  if (const std::uint32_t version = little_endian32(beginning, 1); version != kVersion) {
    return no_tokens("has version " + std::to_string(version) + " of llm.c's format, where version " +
                     std::to_string(kVersion) + " is expected; write the file with llm.c's present scripts");
  }
  const std::uint64_t tokens = little_endian32(beginning, 2);
  const std::uint64_t wanted = kTokenHeader + 2 * tokens;
  const std::string header = "its header says " + with_thousands(tokens) + " tokens, which is " +
                             with_thousands(wanted) + " bytes, but it has " + with_thousands(size);
  if (size < wanted) return no_tokens(header + ": truncated; write the file again");
  if (size > wanted) return no_tokens(header + ": not the file that its header says; write the file again");
  if (tokens == 0) return no_tokens("its header says 0 tokens; write the file again");
  return TokenLayout{.begin = kTokenHeader, .tokens = tokens};
}

Status check_kind(std::span<const std::uint8_t> beginning) {
  const std::string expected = ", where 16-bit tokens are expected: ";
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  if (text.starts_with("\x93NUMPY"))
    return no_tokens("is a NumPy array with its header" + expected +
                     "numpy.load(FILE).astype('<u2').tofile('train.bin') writes them");
  if (text.size() >= kEnoughText && is_text(text))
    return no_tokens("is text" + expected + "`dtrun prepare` makes them of it");
  const std::size_t words = beginning.size() / 4;
  if (words < kEnoughWords) return {};
  std::size_t high = 0, low = 0, every_second = 0, floats = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint32_t word = little_endian32(beginning, i);
    high += word >> 16 != 0;
    low += (word & 0xffff) != 0;
    every_second += i % 2 == 0 && word != 0;
    const auto number = std::bit_cast<float>(word);
    floats += word == 0 || (number >= 1 && number < 0x1p24f && number == std::trunc(number));
  }
  // Tokens of 16 bits have small ones and zeros now and then, not in turns.
  const std::string write_again = "write them with a type of 16 bits (numpy's '<u2')";
  if (high == 0 && low == every_second && 8 * low > 3 * words)
    return no_tokens("has a value of 64 bits for each token" + expected + write_again);
  if (high == 0 && 4 * low > 3 * words)
    return no_tokens("has a value of 32 bits for each token" + expected + write_again);
  if (floats == words && 4 * high > 3 * words)
    return no_tokens("has floating-point numbers" + expected + write_again);
  return {};
}

std::string token_header(std::uint64_t tokens) {
  std::string header(kTokenHeader, '\0');
  int at = 0;
  for (const std::uint32_t word : {kMagic, kVersion, static_cast<std::uint32_t>(tokens)})
    for (int shift = 0; shift < 32; shift += 8) header[at++] = static_cast<char>(word >> shift);
  return header;
}

LoadedDataset load_tokens(const DataConfig& config, Split split, NodeMemory&) {
  ASSIGN_OR_RETURN(auto shards, open_split(config, split));
  return std::unique_ptr<Dataset>(std::make_unique<Tokens>(std::move(shards), config));
}

Result<DatasetFacts> check_tokens(const DataConfig& config) {
  if (const auto tokenizer = tokenizer_of(config); !tokenizer.ok()) return tokenizer.status();
  DatasetFacts facts{.spec = window_spec(config.sequence_length, config.vocab_size)};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    ASSIGN_OR_RETURN(const auto shards, open_split(config, split));
    const Shard& last = shards.back();
    (split == Split::kTrain ? facts.train : facts.test) =
        static_cast<std::int64_t>(last.first_sample + windows_in(last.layout.tokens, config.sequence_length));
    // The first tokens of each shard: enough to find files of another tokenizer, or files that hold no
    // tokens.
    for (const Shard& shard : shards) {
      std::array<std::uint8_t, 2048> bytes;
      const std::span<std::uint8_t> first =
          std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), 2 * shard.layout.tokens));
      Status status = shard.read(0, first);
      // llm.c's header says what follows it.
      if (status.ok() && shard.layout.begin == 0)
        if (const Status kind = check_kind(first); !kind.ok()) return kind.within(shard.file.path().string());
      if (status.ok()) status = check_tokens_of(shard, 0, first, config.vocab_size);
      if (!status.ok()) return status;
    }
  }
  return facts;
}

}  // namespace dtrun::worker
