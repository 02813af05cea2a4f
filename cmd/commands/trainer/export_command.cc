#include <string>

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
         "hf: safetensors for transformers; gguf: one model.gguf for llama.cpp and its kin [hf; gguf with "
         "--quantize]"},
    {.name = "quantize",
     .placeholder = "q8_0|q4_0",
     .help = "Store the matrices of a gguf as small integers [fp32]"},
    {.name = "evaluate",
     .help = "Print loss and accuracy on the job's test data, in fp32 and as --quantize stores it"},
    kColorOption,
    kHelpOption};

using ExportOptions = Values<kOptionsOfExport>;

// The format follows from the type where only that is given.
Status read_format(const ExportOptions& options, worker::ExportRequest* request) {
  const auto format = options.given("format"), quantize = options.given("quantize");
  if (format && format->value != "hf" && format->value != "gguf")
    return usage(quoted(*format) + ": expected hf or gguf");
  if (format) request->format = format->value;
  if (!quantize) return {};
  if (quantize->value != "q8_0" && quantize->value != "q4_0")
    return usage(quoted(*quantize) + ": expected q8_0 or q4_0");
  if (format && format->value == "hf") return usage(quoted(*quantize) + ": only the format gguf has it");
  request->format = "gguf";
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
        "integers, which take about a quarter or a seventh of the space.\n\nOnly gpt2 is a model of "
        "transformers and llama.cpp. docs/model.md tells how PyTorch loads the others.",
    .argument = "RUN",
    .second = "DIR",
    .options = kOptionsOfExport,
    .rare = true,
    .run = run_export};

}  // namespace dtrun::cmd
