#include <climits>
#include <optional>
#include <string>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/machine/machine.h"
#include "cmd/options/values.h"
#include "proto/core/number.h"
#include "worker/config/tool_request.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfPrepare[] = {
    {.name = "tokenizer",
     .placeholder = "PATH",
     .help = "A tokenizer.json, a vocab.json with merges.txt beside it, or their directory; must be given"},
    {.name = "name", .placeholder = "NAME", .help = "Prefix of the files' names [tokens]"},
    {.name = "shard_tokens", .placeholder = "N", .help = "Tokens per file; the last has fewer [100000000]"},
    {.name = "val_fraction", .placeholder = "X", .help = "Fraction for validation; 0: none [0.01]"},
    {.name = "eos_token", .placeholder = "TOKEN", .help = "Token before each document [<|endoftext|>]"},
    {.name = "json_field", .placeholder = "NAME", .help = "Text field of a .jsonl file's lines [text]"},
    {.name = "files", .placeholder = "PATTERN", .help = "Pattern of a directory's files [*]"},
    {.name = "threads", .placeholder = "N", .help = "Encoding threads; change no byte [one per core]"},
    kColorOption,
    kHelpOption};

using PrepareOptions = Values<kOptionsOfPrepare>;

Status check_name(const std::string& name) {
  if (name.empty() || name.find_first_of("/\n") != std::string::npos || name[0] == '.')
    return usage("--name=" + name + ": expected the beginning of a file name");
  // The trainer tells a file's purpose by these words.
  for (const char* word : {"train", "val", "test"}) {
    if (name.find(word) != std::string::npos)
      return usage("--name=" + name + ": has \"" + word +
                   "\" in it, which tells what a file is for; choose another");
  }
  return {};
}

Result<double> parse_fraction(const Given& given) {
  const auto value = parse_number<double>(given.value);
  if (value && *value >= 0 && *value <= 0.5) return *value;
  return usage(quoted(given) + ": expected a number from 0 to 0.5");
}

// Parses a count.
auto up_to(int most) {
  return [most](const Given& given) { return parse_count(given, most, "1 to " + std::to_string(most)); };
}

void read_text(const std::optional<Given>& given, std::string* text) {
  if (given) *text = given->value;
}

int run_prepare(const Invocation& invocation) {
  const PrepareOptions options{invocation.values};
  worker::PrepareRequest request{
      .directory = invocation.argument, .threads = usable_cpus().count, .words = invocation.from_second_on()};
  read_text(options.given("tokenizer"), &request.tokenizer);
  read_text(options.given("name"), &request.name);
  read_text(options.given("eos_token"), &request.eos_token);
  read_text(options.given("json_field"), &request.json_field);
  read_text(options.given("files"), &request.files);
  if (request.tokenizer.empty())
    return fail(usage("dtrun prepare needs --tokenizer PATH, a tokenizer.json (dtrun prepare --help)"));
  Status status = check_name(request.name);
  if (status.ok()) status = read_given(options.given("shard_tokens"), &request.shard_tokens, up_to(INT_MAX));
  if (status.ok()) status = read_given(options.given("threads"), &request.threads, up_to(1024));
  if (status.ok()) status = read_given(options.given("val_fraction"), &request.val_fraction, parse_fraction);
  return status.ok() ? become_worker(worker::arguments_of(request)) : fail(status);
}

}  // namespace

constinit const Command kPrepareCommand{
    .name = "prepare",
    .summary = "Tokenize text into files",
    .description =
        "Each TEXT is a file, or a directory whose files are taken at any depth. A file is a document; one "
        "whose "
        "name ends in .jsonl has a document a line, in a JSON object's field. All of it is UTF-8. The "
        "tokenizer is a byte-level BPE, "
        "as those of GPT-2 and Llama 3 are, and has at most 65,536 tokens.\n\n"
        "DIR gets NAME_train_000001.bin and so on, NAME_val_000000.bin, and the tokenizer; a config's "
        "data.type "
        "\"tokens\" takes it as its data.path. It must be new or empty, and appears when all is written: a "
        "preparation that is stopped or killed leaves nothing there.\n\n"
        "The last line, on standard output, says what was made: prepared DIR: documents=N bytes=N "
        "train_tokens=N "
        "val_tokens=N train_shards=N val_shards=N vocab_size=N seconds=X. docs/data.md has an example.",
    .argument = "DIR",
    .second = "TEXT",
    .second_repeats = true,
    .options = kOptionsOfPrepare,
    .rare = true,
    .run = run_prepare};

}  // namespace dtrun::cmd
