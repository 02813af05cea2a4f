#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/trainer/become_worker.h"
#include "cmd/options/values.h"
#include "worker/config/tool_request.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfExport[] = {
    {.name = "format",
     .placeholder = "hf|gguf",
     .help =
         "hf: safetensors for transformers; gguf: one model.gguf for llama.cpp and its kin [hf, or that of "
         "--quantize]"},
    {.name = "quantize",
     .placeholder = "int8|int4|q8_0|q4_0",
     .help = "Store matrices as small integers: int8 and int4 in hf (compressed-tensors), q8_0 and q4_0 in "
             "gguf [fp32]"},
    {.name = "evaluate",
     .help = "Print loss and accuracy on the job's test data, in fp32 and as --quantize stores it"},
    kColorOption,
    kHelpOption};

using ExportOptions = Values<kOptionsOfExport>;

constexpr std::string_view kTypesOfHf[] = {"int8", "int4"}, kTypesOfGguf[] = {"q8_0", "q4_0"};

bool has(std::span<const std::string_view> types, const std::string& type) {
  return std::ranges::find(types, type) != types.end();
}

// The format follows from the type where only that is given.
Status read_format(const ExportOptions& options, worker::ExportRequest* request) {
  const auto format = options.given("format"), quantize = options.given("quantize");
  if (format && format->value != "hf" && format->value != "gguf")
    return usage(quoted(*format) + ": expected hf or gguf");
  if (format) request->format = format->value;
  if (!quantize) return {};
  const bool of_hf = has(kTypesOfHf, quantize->value), of_gguf = has(kTypesOfGguf, quantize->value);
  if (!of_hf && !of_gguf) return usage(quoted(*quantize) + ": expected int8, int4, q8_0 or q4_0");
  if (format && of_gguf != (format->value == "gguf"))
    return usage(quoted(*quantize) + ": the format " + format->value + " has no such type (it has " +
                 (of_hf ? "q8_0 and q4_0)" : "int8 and int4)"));
  request->format = of_gguf ? "gguf" : "hf";
  request->quantize = quantize->value;
  return {};
}

int run_export(const Invocation& invocation) {
  const ExportOptions options{invocation.values};
  worker::ExportRequest request{
      .run = invocation.argument, .directory = invocation.second, .evaluate = options.flag("evaluate")};
  const Status status = read_format(options, &request);
  return status.ok() ? become_worker(worker::arguments_of(request)) : fail(status);
}

}  // namespace

constinit const Command kExportCommand{
    .name = "export",
    .summary = "Write a trained model for Hugging Face's transformers",
    .description =
        "RUN is the output_dir of a job, or one of its checkpoints; of a job that has not ended the newest "
        "checkpoint is taken. DIR gets model.safetensors and config.json, and what is there under these "
        "names is replaced, unless DIR is the directory of a run: "
        "`transformers.AutoModelForCausalLM.from_pretrained(\"DIR\")` loads them. The "
        "tokenizer of the job, if its data had one, goes with them, for AutoTokenizer.\n\n--format gguf "
        "writes model.gguf alone, with the tokenizer in it. --quantize stores the matrices as small "
        "integers, "
        "which take a quarter or an eighth of the space.\n\nOnly gpt2 is a model of transformers and "
        "llama.cpp. docs/model.md tells how PyTorch loads the others.",
    .argument = "RUN",
    .second = "DIR",
    .options = kOptionsOfExport,
    .rare = true,
    .run = run_export};

}  // namespace dtrun::cmd
