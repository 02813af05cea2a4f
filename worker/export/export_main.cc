#include "worker/export/export_main.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/collective/process_group.h"
#include "worker/data/dataset.h"
#include "worker/device/lane_team.h"
#include "worker/quantize/matrices.h"
#include "worker/trainer/evaluation.h"

namespace dtrun::worker {
namespace {

std::optional<Quantization> quantization_of(const ExportRequest& request) {
  const auto* const found = std::ranges::find(kNamesOf<Quantization>, request.quantize);
  if (found == kNamesOf<Quantization>.end()) return std::nullopt;
  return static_cast<Quantization>(found - kNamesOf<Quantization>.begin());
}

void write_files(const ExportRequest& request) {
  const Exported done =
      export_model(request.run, request.directory,
                   {.format = request.format == "gguf" ? ExportFormat::kGguf : ExportFormat::kHf,
                    .quantize = quantization_of(request)});
  std::string others;
  for (std::size_t i = 1; i < done.files.size(); ++i)
    others += (i + 1 < done.files.size() ? ", " : " and ") + done.files[i];
  std::printf("wrote %s%s, from %s\n", (done.directory / done.files[0]).c_str(), others.c_str(),
              done.source.c_str());
}

void evaluate(const ExportRequest& request) {
  const TrainedModel model = trained_model(request.run);
  const auto data = load_dataset(model.config.data, Split::kTest);
  JobConfig config = model.config;
  config.train.bf16 = false;
  config.train.quantize_aware.reset();
  const Program program = make_program(config, data->spec(), data->values());
  const std::vector<float> parameters = load_parameters(model.file, program);
  const auto device = make_cpu_device();
  LaneTeam lanes(*device, program, 1, config.train.micro_batch_size);
  const auto group = make_single_process_group();
  const auto tell = [&](const std::string& name, const std::vector<float>& weights) {
    const Evaluation found =
        *evaluate(*data, config.train.micro_batch_size, weights.data(), *group, lanes, [] { return false; });
    std::printf("%s: test loss %.4f, accuracy %.2f %%\n", name.c_str(), found.loss, 100 * found.accuracy);
  };
  tell("fp32", parameters);
  const std::optional<Quantization> how = quantization_of(request);
  if (!how) return;
  std::vector<float> rounded(program.size);
  round_matrices(program, *how, parameters.data(), rounded.data());
  tell(request.quantize, rounded);
}

}  // namespace

int export_main(const ExportRequest& request) {
  try {
    write_files(request);
    if (request.evaluate) evaluate(request);
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  }
}

}  // namespace dtrun::worker
