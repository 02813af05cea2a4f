// dtrun's requests to the trainer's tools: `dtrun prepare`, `dtrun sample`, `dtrun export` and `dtrun
// profile` check their options, and dtrun-worker does the work. A field that an option gives has the option's
// default here, and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dtrun::worker {

struct PrepareRequest {
  static constexpr char kTool[] = "prepare";
  std::string directory = {}, tokenizer = {};
  std::string eos_token = "<|endoftext|>";
  std::string name = "tokens";
  std::uint64_t shard_tokens = 100'000'000;
  double val_fraction = 0.01;
  std::string json_field = "text", files = "*";
  int threads = 1;
  std::vector<std::string> words = {};  // texts: files and directories
};

struct SampleRequest {
  static constexpr char kTool[] = "sample";
  std::string run = {}, prompt = {};
  int max_new_tokens = 256;
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> words = {};  // none
};

struct ExportRequest {
  static constexpr char kTool[] = "export";
  std::string run = {}, directory = {};
  std::string format = "hf";  // or "gguf"
  std::string quantize = {};  // one of its types; empty: fp32
  bool evaluate = false;
  std::vector<std::string> words = {};  // none
};

struct ProfileRequest {
  static constexpr char kTool[] = "profile";
  std::string config = {};  // a path
  int lanes = 1;
  int steps = 0;  // 0: as many as take two seconds
  bool json = false;
  std::optional<int> gpu = {};          // its number; nothing: the CPU
  std::vector<std::string> words = {};  // overrides of the config, KEY=VALUE
};

// The command line that asks dtrun-worker for it: the tool, one JSON object, and the words, since only they
// may be more than one argument can hold. Texts may have any bytes.
template <typename Request>
std::vector<std::string> arguments_of(const Request& request);

// The request that `arguments` (behind the tool's name) ask for; nothing if arguments_of did not make them.
template <typename Request>
std::optional<Request> request_of(const std::vector<std::string>& arguments);

}  // namespace dtrun::worker
