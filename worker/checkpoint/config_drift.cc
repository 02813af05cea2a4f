#include "worker/checkpoint/config_drift.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "proto/base/text_in.h"
#include "worker/checkpoint/best_model.h"
#include "worker/checkpoint/places.h"
#include "worker/checkpoint/state_text.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

std::optional<StateText> state_in(const fs::path& checkpoint) {
  Result<StateText> state = parse_state(text_in(checkpoint / kStateFile));
  return state.ok() ? std::optional(std::move(state).value()) : std::nullopt;
}

// The newest first.
std::vector<fs::path> checkpoints_for(const JobConfig& config) {
  const ResumeFrom& wanted = config.train.resume_from_checkpoint;
  if (wanted.kind == ResumeFrom::Kind::kNone) return {};
  if (wanted.kind == ResumeFrom::Kind::kNamed) return {wanted.text};
  std::vector<fs::path> found;
  for (const auto& [step, path] : list_checkpoints(config.output_dir)) found.push_back(path);
  std::ranges::reverse(found);
  return found;
}

}  // namespace

ConfigDrift config_drift(const JobConfig& now, const std::string& checkpoint_config) {
  const Result<JobConfig> then = parse_config(checkpoint_config, "the checkpoint's config", {});
  if (!then.ok()) {
    return {.fatal = {},
            .harmless = "the checkpoint's config cannot be read (" + then.status().message() + ")"};
  }
  const std::string here = to_canonical_json(now);
  // The places of data and results may change, but not their contents.
  JobConfig moved = then.value();
  moved.output_dir = now.output_dir;
  moved.data.path = now.data.path;
  // keep_tokenizer compares the tokenizers' contents. A text without a tokenizer has other tokens; token
  // files keep theirs.
  if (now.data.type == DataType::kTokens ||
      moved.data.tokenizer.has_value() == now.data.tokenizer.has_value())
    moved.data.tokenizer = now.data.tokenizer;
  moved.train.resume_from_checkpoint = now.train.resume_from_checkpoint;
  moved.recovery = now.recovery;
  JobConfig identity = moved;
  identity.train = now.train;
  identity.device = now.device;  // another device changes bits, not the meaning
  identity.model.gradient_checkpointing = now.model.gradient_checkpointing;
  return {.fatal = all_differences(here, to_canonical_json(identity)),
          .harmless = all_differences(here, to_canonical_json(moved)),
          .reorders_samples = then.value().train.seed != now.train.seed ||
                              then.value().train.global_batch_size != now.train.global_batch_size ||
                              then.value().train.dataloader_drop_last != now.train.dataloader_drop_last,
          .other_best = better_of(then.value().train) != better_of(now.train)};
}

Status refuse_drift(const JobConfig& now, const ConfigDrift& drift, std::int64_t step) {
  if (drift.fatal.empty()) return {};
  return Status(kExitConfig, "the checkpoint of step " + std::to_string(step) + " in " + now.output_dir +
                                 " belongs to another job: " + drift.fatal +
                                 " (in the checkpoint); choose another output_dir");
}

Status refuse_used_directory(const JobConfig& config) {
  if (config.train.resume_from_checkpoint.kind != ResumeFrom::Kind::kNone) return {};
  std::error_code error;
  const bool has_model = fs::exists(fs::path(config.output_dir) / kModelFile, error);
  if (!has_model && list_checkpoints(config.output_dir).empty()) return {};
  return Status(kExitConfig, "/train/resume_from_checkpoint is \"none\", but " + config.output_dir +
                                 " already holds " + (has_model ? "a model" : "checkpoints") +
                                 "; set it to \"auto\" to go on, or choose another output_dir");
}

Status check_goes_on(const JobConfig& config) {
  RETURN_IF_ERROR(refuse_used_directory(config));
  for (const fs::path& checkpoint : checkpoints_for(config)) {
    const std::optional<StateText> state = state_in(checkpoint);
    if (state) return refuse_drift(config, config_drift(config, state->config_json), state->step);
  }
  return {};
}

}  // namespace dtrun::worker
