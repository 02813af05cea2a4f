#include "worker/trainer/resume.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "worker/base/error.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

void refuse_used_directory(const fs::path& output_dir) {
  const bool has_model = fs::exists(output_dir / "model.safetensors");
  if (!has_model && !has_checkpoints(output_dir)) return;
  throw WorkerError(kExitConfig, "/train/resume_from_checkpoint is \"none\", but " + output_dir.string() +
                                     " already holds " + (has_model ? "a model" : "checkpoints") +
                                     "; set it to \"auto\" to go on, or choose another output_dir");
}

void refuse_newer_checkpoints(const JobConfig& config, std::int64_t step) {
  const auto newest = newest_step(config.output_dir, [](const std::string&) {});
  if (!newest || *newest <= step) return;
  throw WorkerError(kExitConfig, config.output_dir + " already holds a checkpoint of step " +
                                     std::to_string(*newest) + ", newer than step " + std::to_string(step) +
                                     " of " + config.train.resume_from_checkpoint +
                                     " to resume from; remove it or choose another output_dir");
}

bool explicit_path(const JobConfig& config) {
  return config.train.resume_from_checkpoint != "auto" && config.train.resume_from_checkpoint != "none";
}

bool first_generation(const Place& place) { return place.generation <= 1; }

// What this rank could begin from; only step matters until a rank is chosen.
struct Candidate {
  std::int64_t step = -1;           // -1: nothing
  std::optional<TrainState> state;  // loaded already
  // Why there is nothing although there should be something. Thrown only if no other rank has anything.
  std::optional<WorkerError> fault;
};

// The checkpoint that the config names. In a later generation it may be gone, also by this run's own pruning,
// and is not needed if the run has written one of its own.
void look_at_named(const JobConfig& config, const Place& place, const Network& network,
                   Candidate* candidate) {
  try {
    candidate->state = load_checkpoint(config.train.resume_from_checkpoint, network);
    candidate->step = candidate->state->step;
  } catch (const WorkerError& error) {
    if (first_generation(place)) throw;
    candidate->fault = error;
  }
}

void look_at_newest(const JobConfig& config, const Notice& notice, Candidate* candidate) {
  const auto newest = newest_step(config.output_dir, notice);
  if (newest && *newest > candidate->step) {
    *candidate = {.step = *newest, .state = std::nullopt, .fault = std::nullopt};
  } else if (!newest && has_checkpoints(config.output_dir)) {
    candidate->fault.emplace(kExitNoInput,
                             "none of the checkpoints in " + config.output_dir +
                                 " can be used; repair or remove them, or choose another output_dir");
  }
}

// The first rank of each node looks at the disk. In a later generation the run's own checkpoints count
// whatever the config says, since they are where the run left off.
Candidate look_at_disk(const JobConfig& config, const Place& place, const Network& network,
                       const Notice& notice) {
  const std::string& wanted = config.train.resume_from_checkpoint;
  Candidate candidate;
  if (explicit_path(config) && place.rank == 0) look_at_named(config, place, network, &candidate);
  if (place.local_rank != 0) return candidate;
  if (wanted == "none" && first_generation(place)) refuse_used_directory(config.output_dir);
  if (wanted == "auto" || !first_generation(place)) look_at_newest(config, notice, &candidate);
  return candidate;
}

void broadcast_state(Collective& collective, int root, TrainState& state) {
  std::vector<std::int64_t> header{state.step, static_cast<std::int64_t>(state.config_json.size())};
  collective.broadcast(root, bytes_of(header));
  state.step = header[0];
  state.config_json.resize(static_cast<std::size_t>(header[1]));
  collective.broadcast(root, std::as_writable_bytes(std::span(state.config_json)));
  collective.broadcast(root, bytes_of(state.parameters));
  for (OptimizerSlot& slot : state.optimizer) collective.broadcast(root, bytes_of(slot.values));
}

TrainState load_chosen(const JobConfig& config, const Network& network, Candidate candidate) {
  if (candidate.state) return *std::move(candidate.state);
  // Faults were named when the step was looked up.
  auto state = load_newest(config.output_dir, network, [](const std::string&) {});
  if (state && state->step == candidate.step) return *std::move(state);
  throw WorkerError(kExitConfig, "checkpoint of step " + std::to_string(candidate.step) + " in " +
                                     config.output_dir + " changed while it was read");
}

std::string names_of(const std::vector<OptimizerSlot>& slots) {
  std::string names;
  for (const OptimizerSlot& slot : slots) names += (names.empty() ? "" : " and ") + slot.name;
  return names.empty() ? "none" : names;
}

void check_slots(const TrainState& state, const std::vector<OptimizerSlot>& slots) {
  const bool same =
      std::ranges::equal(state.optimizer, slots, [](const OptimizerSlot& a, const OptimizerSlot& b) {
        return a.name == b.name && a.values.size() == b.values.size();
      });
  if (same) return;
  throw WorkerError(kExitConfig, "/train/optim: the checkpoint of step " + std::to_string(state.step) +
                                     " has the state of another optimizer (" + names_of(state.optimizer) +
                                     " where this one needs " + names_of(slots) +
                                     "); keep its optim and momentum, or choose another output_dir");
}

}  // namespace

ConfigDrift config_drift(const JobConfig& now, const std::string& checkpoint_config) {
  const Result<JobConfig> then = parse_config(checkpoint_config, "the checkpoint's config", {});
  if (!then.ok()) {
    return {.fatal = {},
            .harmless = "the checkpoint's config cannot be read (" + then.status().message() + ")"};
  }
  const std::string here = to_canonical_json(now);
  // Where data and results lie may change; what they are may not.
  JobConfig moved = then.value();
  moved.output_dir = now.output_dir;
  moved.data.path = now.data.path;
  moved.train.resume_from_checkpoint = now.train.resume_from_checkpoint;
  JobConfig identity = moved;
  identity.train = now.train;
  return {.fatal = all_differences(here, to_canonical_json(identity)),
          .harmless = all_differences(here, to_canonical_json(moved)),
          .reorders_samples = then.value().train.seed != now.train.seed ||
                              then.value().train.global_batch_size != now.train.global_batch_size};
}

ResumePoint choose_start(const JobConfig& config, const Place& place, const Network& network,
                         const std::vector<OptimizerSlot>& slots, Collective& collective,
                         const Notice& notice) {
  Candidate mine = look_at_disk(config, place, network, notice);
  std::vector<std::int64_t> steps(place.world_size);
  steps[place.rank] = mine.step;
  collective.all_gather(bytes_of(steps));
  const auto newest = std::ranges::max_element(steps);  // the first of equals
  if (*newest < 0 && mine.fault) throw WorkerError(*mine.fault);
  if (explicit_path(config) && first_generation(place) && place.local_rank == 0) {
    refuse_newer_checkpoints(config, *newest);  // a later generation would take them for this run's
  }
  ResumePoint start;
  start.state.parameters.resize(network.size);
  start.state.optimizer = slots;
  if (*newest < 0) {
    initialize_parameters(network, config.train.seed, start.state.parameters);
    return start;
  }
  start.resumed = true;
  start.source_rank = static_cast<int>(newest - steps.begin());
  if (place.rank == start.source_rank) {
    start.state = load_chosen(config, network, std::move(mine));
    check_slots(start.state, slots);
  }
  broadcast_state(collective, start.source_rank, start.state);
  return start;
}

}  // namespace dtrun::worker
