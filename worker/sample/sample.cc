#include "worker/sample/sample.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/places.h"
#include "worker/config/config.h"
#include "worker/core/choose_token.h"
#include "worker/core/philox.h"
#include "worker/device/cpu/planned/generator.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

// Of the job that the run belongs to: beside the model, or above a checkpoint.
JobConfig config_of(const fs::path& model) {
  const fs::path beside = model.parent_path() / "config.json";
  const fs::path above = model.parent_path() / "../../config.json";
  std::error_code ignored;
  const fs::path path = fs::exists(beside, ignored) ? beside : above;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open())
    throw WorkerError(kExitNoInput,
                      model.string() + ": there is no config.json of its job, which says what model it is");
  Result<JobConfig> config = parse_config(text.str(), path.string(), {});
  if (!config.ok()) throw WorkerError(config.status().exit_code(), config.status().message());
  return std::move(config).value();
}

// What the tokens are: bytes, or numbers of a tokenizer that is not ours.
class Words {
 public:
  explicit Words(const DataConfig& data)
      : bytes_(data.type == "text"), classes_(bytes_ ? 256 : data.vocab_size) {}
  int classes() const { return classes_; }

  std::vector<std::int32_t> read(const std::string& prompt) const {
    std::vector<std::int32_t> tokens;
    if (bytes_) {
      for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
      return tokens;
    }
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

  // False if nobody can read it any more.
  bool write(int token) const {
    if (bytes_)
      std::putchar(token);
    else
      std::printf("%d ", token);
    return std::fflush(stdout) == 0;
  }

 private:
  const bool bytes_;
  const int classes_;
};

struct Wish {
  std::string prompt;
  int max_new_tokens = 0;
  Sampling sampling;
  std::uint64_t seed = 0;
};

void write_text(const fs::path& run, const Wish& wish) {
  const fs::path model = model_file_of(run);
  const JobConfig config = config_of(model);
  if (config.model.type != "gpt2")
    throw WorkerError(kExitConfig,
                      model.string() + ": a \"" + config.model.type + "\" writes no text; a \"gpt2\" does");
  const Words words(config.data);
  const int longest = config.model.n_positions;
  const Program program = make_program(config.model, {.input = SampleSpec::Input::kTokens,
                                                      .shape = {1, 1, longest},
                                                      .targets = longest,
                                                      .classes = words.classes()});
  Generator generator(program, load_parameters(model, program));
  std::vector<std::int32_t> text = words.read(wish.prompt);
  if (text.empty()) text.push_back(words.read(words.classes() == 256 ? "\n" : "0").front());
  const RandomStream random(wish.seed, RandomUse::kSample, 0, 0);
  for (const std::int32_t token : text) words.write(token);

  // A text that is longer than the model's memory goes on from its second half.
  std::size_t taken_in = text.size() - std::min<std::size_t>(text.size(), longest - longest / 2);
  for (int i = 0; i < wish.max_new_tokens; ++i) {
    if (generator.size() == longest) {
      generator.clear();
      taken_in = text.size() - (longest - longest / 2);
    }
    std::span<const float> logits;
    while (taken_in < text.size() && generator.size() < longest) logits = generator.next(text[taken_in++]);
    text.push_back(choose_token(logits, wish.sampling, random.uniform(static_cast<std::uint64_t>(i))));
    if (!words.write(text.back())) throw WorkerError(kExitIo, "cannot write the text");
  }
  std::putchar('\n');
}

}  // namespace

int sample_main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 7) return kExitUsage;
  try {
    write_text(arguments[0], {.prompt = arguments[1],
                              .max_new_tokens = std::atoi(arguments[2].c_str()),
                              .sampling = {.temperature = std::atof(arguments[3].c_str()),
                                           .top_k = std::atoi(arguments[4].c_str()),
                                           .top_p = std::atof(arguments[5].c_str())},
                              .seed = std::strtoull(arguments[6].c_str(), nullptr, 10)});
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  }
}

}  // namespace dtrun::worker
