// What the tokens of a job are for people: bytes, a tokenizer's pieces of text, or bare numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/config/config.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {

class Script {
 public:
  virtual ~Script() = default;
  virtual int classes() const = 0;  // of the data: the model's, where the config leaves that open
  virtual int choices() const { return classes(); }  // tokens that mean something are below it
  // Throws WorkerError, EX_USAGE, for what is no text of this kind.
  virtual std::vector<std::int32_t> read(const std::string& prompt) const = 0;
  // What a text without a prompt begins with.
  virtual std::int32_t first() const = 0;
  // What a token adds to what is shown; and in the end what was held back.
  virtual std::string shown(std::int32_t token) = 0;
  virtual std::string rest() { return ""; }
};

// tokenizer: of tokens or text; may be null.
std::unique_ptr<Script> make_script(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace dtrun::worker
