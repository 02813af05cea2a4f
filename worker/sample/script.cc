#include "worker/sample/script.h"

#include <cstdlib>
#include <sstream>

#include "proto/core/utf8.h"
#include "worker/base/error.h"
#include "worker/tokenizer/utf8.h"

namespace dtrun::worker {
namespace {

class ByteScript : public Script {
 public:
  int classes() const override { return 256; }
  std::vector<std::int32_t> read(const std::string& prompt) const override {
    std::vector<std::int32_t> tokens;
    for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::int32_t first() const override { return '\n'; }
  std::string shown(std::int32_t token) override { return std::string(1, static_cast<char>(token)); }
};

class Numbers : public Script {
 public:
  explicit Numbers(int classes) : classes_(classes) {}
  int classes() const override { return classes_; }
  std::vector<std::int32_t> read(const std::string& prompt) const override {
    std::vector<std::int32_t> tokens;
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      char* end = nullptr;
      const long token = std::strtol(word.c_str(), &end, 10);
      if (*end != '\0' || token < 0 || token >= classes_)
        throw WorkerError(kExitUsage, "--prompt: \"" + word +
                                          "\" is no token; this job's are numbers from 0 to " +
                                          std::to_string(classes_ - 1));
      tokens.push_back(static_cast<std::int32_t>(token));
    }
    return tokens;
  }
  std::int32_t first() const override { return 0; }
  std::string shown(std::int32_t token) override { return std::to_string(token) + " "; }

 private:
  const int classes_;
};

class PieceScript : public Script {
 public:
  PieceScript(std::shared_ptr<const Tokenizer> tokenizer, int classes)
      : tokenizer_(std::move(tokenizer)), classes_(classes) {}
  int classes() const override { return classes_; }
  int choices() const override { return tokenizer_->size(); }
  std::vector<std::int32_t> read(const std::string& prompt) const override {
    if (const auto bad = invalid_utf8_at(prompt))
      throw WorkerError(kExitUsage, "--prompt: byte " + std::to_string(*bad) + " is no UTF-8");
    std::vector<std::int32_t> tokens;
    Encoder(*tokenizer_).encode(prompt, true, tokens);
    return tokens;
  }
  std::int32_t first() const override {
    return tokenizer_->id_of(kEndOfText).value_or(*tokenizer_->id_of("\n"));
  }
  std::string shown(std::int32_t token) override { return characters_.take(tokenizer_->bytes_of(token)); }
  std::string rest() override { return characters_.finish(); }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int classes_;
  WholeCharacters characters_;
};

}  // namespace

std::unique_ptr<Script> make_script(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer) {
  const bool text = data.type == DataType::kText;
  if (tokenizer) {
    const int classes = text ? tokenizer->size() : data.vocab_size;
    return std::make_unique<PieceScript>(std::move(tokenizer), classes);
  }
  if (text) return std::make_unique<ByteScript>();
  return std::make_unique<Numbers>(data.vocab_size);
}

}  // namespace dtrun::worker
