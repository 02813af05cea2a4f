#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/options/values.h"
#include "worker/base/error.h"
#include "worker/checkpoint/export.h"

namespace dtrun::cmd {
namespace {

constexpr OptionEntry kOptionsOfExport[] = {kColorOption, kHelpOption};

int run_export(const Invocation& invocation) {
  try {
    const worker::Exported done = worker::export_model(invocation.argument, invocation.second);
    std::string others;
    for (std::size_t i = 1; i < done.files.size(); ++i)
      others += (i + 1 < done.files.size() ? ", " : " and ") + done.files[i];
    return answer("wrote " + (done.directory / done.files[0]).string() + others + ", from " +
                  done.source.string() + "\n");
  } catch (const worker::WorkerError& error) {
    return fail(Status(error.exit_code(), error.what()));
  }
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
        "tokenizer of the job, if its data had one, goes with them, for AutoTokenizer.\n\nOnly gpt2 "
        "is a "
        "model of transformers. docs/model.md tells how PyTorch loads the others.",
    .argument = "RUN",
    .second = "DIR",
    .options = kOptionsOfExport,
    .rare = true,
    .run = run_export};

}  // namespace dtrun::cmd
