// The tokens of a job in readable form: bytes, a tokenizer's pieces of text, or bare numbers.
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
  virtual int classes() const = 0;  // of the data, which are the model's if the config leaves those open
  virtual int choices() const { return classes(); }  // all meaningful tokens are below it
  // Throws WorkerError, EX_USAGE, for a text that is not of this kind.
  virtual std::vector<std::int32_t> read(const std::string& prompt) const = 0;
  // The first token of a text without a prompt.
  virtual std::int32_t first() const = 0;
  // The output that a token adds; rest() is output held back until the end.
  virtual std::string shown(std::int32_t token) = 0;
  virtual std::string rest() { return ""; }
};

// tokenizer: that of tokens or text; may be null.
std::unique_ptr<Script> make_script(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace dtrun::worker
