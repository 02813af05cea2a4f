#include "worker/trainer/recovery/resume.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/base/stop_point.h"
#include "worker/checkpoint/config_drift.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/trained_model.h"
#include "worker/collective/tags.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {

namespace {

namespace fs = std::filesystem;

void refuse_newer_checkpoints(const JobConfig& config, std::int64_t step) {
  const auto newest = newest_step(config.output_dir, [](const std::string&) {});
  if (!newest || *newest <= step) return;
  throw WorkerError(kExitConfig, config.output_dir + " already holds a checkpoint of step " +
                                     std::to_string(*newest) + ", newer than step " + std::to_string(step) +
                                     " of " + config.train.resume_from_checkpoint.text +
                                     " to resume from; remove it or choose another output_dir");
}

void or_throw(const Status& status) {
  if (!status.ok()) throw WorkerError(status.exit_code(), status.message());
}

bool explicit_path(const JobConfig& config) {
  return config.train.resume_from_checkpoint.kind == ResumeFrom::Kind::kNamed;
}

bool first_generation(const RankInGeneration& place) { return place.generation <= 1; }

// A checkpoint that this rank could begin from; only step matters until a rank is chosen.
struct CheckpointCandidate {
  std::int64_t step = -1;           // -1: nothing
  std::optional<TrainState> state;  // loaded already
  // The reason why an expected checkpoint is missing. Thrown only if no other rank has one.
  std::optional<WorkerError> fault;
};

// The checkpoint that the config names. In a later generation it may be gone, also by this run's own pruning,
// and is not needed if the run has written one of its own.
void look_at_named(const JobConfig& config, const RankInGeneration& place, const Program& program,
                   CheckpointCandidate* candidate) {
  try {
    candidate->state = load_checkpoint(config.train.resume_from_checkpoint.text, program);
    candidate->step = candidate->state->step;
  } catch (const WorkerError& error) {
    if (first_generation(place)) throw;
    candidate->fault = error;
  }
}

void look_at_newest(const JobConfig& config, const Notice& notice, CheckpointCandidate* candidate) {
  const auto newest = newest_step(config.output_dir, notice);
  if (newest && *newest > candidate->step) {
    *candidate = {.step = *newest, .state = std::nullopt, .fault = std::nullopt};
  } else if (!newest && has_checkpoints(config.output_dir)) {
    candidate->fault.emplace(kExitNoInput,
                             "none of the checkpoints in " + config.output_dir +
                                 " can be used; repair or remove them, or choose another output_dir");
  }
}

// The first rank of each node looks at the disk. In a later generation the run's own checkpoints count,
// whatever the config says, since the run left off there.
CheckpointCandidate look_at_disk(const JobConfig& config, const RankInGeneration& place,
                                 const Program& program, const Notice& notice) {
  CheckpointCandidate candidate;
  if (explicit_path(config) && place.rank == 0) look_at_named(config, place, program, &candidate);
  if (place.local_rank != 0) return candidate;
  if (first_generation(place)) or_throw(refuse_used_directory(config));
  const bool newest = config.train.resume_from_checkpoint.kind == ResumeFrom::Kind::kNewest;
  if (newest || !first_generation(place)) look_at_newest(config, notice, &candidate);
  return candidate;
}

void broadcast(ProcessGroup& group, int root, const std::vector<bool>& lacks, std::span<std::byte> bytes) {
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (int rank = 0; rank < group.size() && group.rank() == root; ++rank)
    if (lacks[rank]) sends.push_back({.peer = rank, .tag = kTagBroadcast, .bytes = bytes});
  if (lacks[group.rank()]) receives.push_back({.peer = root, .tag = kTagBroadcast, .bytes = bytes});
  group.start(sends, receives)->wait();
}

// Sends the state from `root` to the ranks that lack it. `state`: root's state; on other ranks one of the
// same shape.
void broadcast_state(ProcessGroup& group, int root, const std::vector<bool>& lacks, std::size_t size,
                     TrainState& state) {
  std::vector<std::int64_t> header{state.step, static_cast<std::int64_t>(state.config_json.size())};
  broadcast(group, root, lacks, bytes_of(header));
  stop_point(lacks[group.rank()] ? StopPoint::kReceivingState : StopPoint::kSendingState);
  state.step = header[0];
  state.config_json.resize(static_cast<std::size_t>(header[1]));
  broadcast(group, root, lacks, std::as_writable_bytes(std::span(state.config_json)));
  state.parameters.resize(size);
  broadcast(group, root, lacks, bytes_of(state.parameters));
  for (OptimizerSlot& slot : state.optimizer) broadcast(group, root, lacks, bytes_of(slot.values));
}

TrainState load_chosen(const JobConfig& config, const Program& program, CheckpointCandidate candidate) {
  if (candidate.state) return *std::move(candidate.state);
  // The look-up of the step has reported faults already.
  auto state = load_newest(config.output_dir, program, [](const std::string&) {});
  if (state && state->step == candidate.step) return *std::move(state);
  throw WorkerError(kExitConfig, "checkpoint of step " + std::to_string(candidate.step) + " in " +
                                     config.output_dir + " changed while it was read");
}

// Of local replicas' many the first ones.
std::string in_words(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  if (names.size() <= kMost) return names.empty() ? "none" : join(names, " and ");
  return join(std::vector(names.begin(), names.begin() + kMost - 1), ", ") + " and " +
         std::to_string(names.size() - kMost + 1) + " more";
}

void check_slots(const TrainState& state, const std::vector<std::string>& wanted) {
  std::vector<std::string> names;
  for (const OptimizerSlot& slot : state.optimizer) names.push_back(slot.name);
  if (names == wanted) return;
  throw WorkerError(kExitConfig, "/train/optim: the checkpoint of step " + std::to_string(state.step) +
                                     " has the state of another optimizer (" + in_words(names) +
                                     " where this one needs " + in_words(wanted) +
                                     "); keep its optim, momentum and local_replicas, or choose another "
                                     "output_dir and let train.init_from name it");
}

// Another teacher would go on teaching something else.
void check_teacher_of(const TrainState& state, const Program& program) {
  const TeacherFile& before = state.teacher;
  const Teacher* const now = program.teacher.get();
  if (now == nullptr || before.sha256.empty() || before.sha256 == now->sha256) return;
  throw WorkerError(kExitConfig, "/train/distill_from: the checkpoint of step " + std::to_string(state.step) +
                                     " had another teacher, " + before.path + " with sha256 " +
                                     before.sha256 + "; " + now->path + " has " + now->sha256 +
                                     ". Bring that one back, or choose another output_dir");
}

// Each rank has read the teacher by itself.
void check_one_teacher(const Program& program, ProcessGroup& group) {
  if (program.teacher == nullptr) return;
  using Digest = std::array<char, 64>;
  std::vector<Digest> all(static_cast<std::size_t>(group.size()));
  program.teacher->sha256.copy(all[static_cast<std::size_t>(group.rank())].data(), sizeof(Digest));
  group.all_gather(bytes_of(all));
  const auto other = std::ranges::find_if(all, [&](const Digest& one) { return one != all[0]; });
  if (other == all.end()) return;
  throw WorkerError(kExitConfig, "/train/distill_from: " + program.teacher->path + " of rank " +
                                     std::to_string(other - all.begin()) +
                                     " is not that of rank 0: copy one teacher to all nodes");
}

}  // namespace

std::string data_drift(const ResumePoint& start, const DataIdentity& now, bool may_differ) {
  const DataIdentity before = start.state ? start.state->data : DataIdentity();
  if (before.contents.empty() || before == now) return "";
  const std::string changed =
      "the data changed since the checkpoint of step " + std::to_string(start.state->step) + ": ";
  if (before.train == now.train)
    return changed + "there are other samples now, " +
           (before.test == now.test ? "as many" : "as many to train on, and more or fewer to test with");
  std::string sizes = changed + "it had " + with_thousands(before.train) +
                      " samples to train on, and there are " + with_thousands(now.train) +
                      " now, so that its steps were of other epochs and samples";
  if (may_differ) return sizes;
  throw WorkerError(kExitConfig, "/data/path: " + sizes +
                                     "; bring that data back, begin in another output_dir with this one's "
                                     "model as train.init_from, or set train.allow_other_data");
}

std::string device_drift(const ResumePoint& start, const std::string& now) {
  const std::string before = start.state ? start.state->device : "";
  if (before.empty() || before == now) return "";
  return "the checkpoint of step " + std::to_string(start.state->step) + " was computed on " + before +
         ", this is " + now + ": what follows can differ in its last bits from what it would have been there";
}

namespace {

// Gathers one number from each rank.
template <typename Number>
std::vector<Number> gathered(ProcessGroup& group, Number mine) {
  std::vector<Number> all(static_cast<std::size_t>(group.size()));
  all[static_cast<std::size_t>(group.rank())] = mine;
  group.all_gather(bytes_of(all));
  return all;
}

// The state that a rank holds, as announced to the others.
struct HeldStep {
  // For a copy: the generation that computed it. A later generation may have gone back, and gone on from
  // there.
  std::int64_t generation = 0;
  std::int64_t step = -1;  // -1: nothing
  auto operator<=>(const HeldStep&) const = default;
};
constexpr std::int64_t kLives = std::numeric_limits<std::int64_t>::max();  // instead of a generation: no
                                                                           // copy, but a replica

HeldStep told(const Held& held) {
  if (!held.step) return {};
  return {.generation = held.copied_in > 0 ? held.copied_in : kLives, .step = *held.step};
}

// The first of the ranks with the largest step.
int newest_of(const std::vector<std::int64_t>& steps) {
  return static_cast<int>(std::ranges::max_element(steps) - steps.begin());
}

// Survivors of one generation are at the same step, or one apart: a rank can be lost between two ranks'
// updates. Copies in the memory of hosts count only where no replica is left: if one copy is ahead, the
// metrics may lack its last steps, and with another sum than the tree's those steps may have other bits by
// now.
ResumePoint go_on(const std::vector<HeldStep>& all, const Program& program, const Held& held,
                  ProcessGroup& group) {
  const auto newest = std::ranges::max_element(all);
  ResumePoint point{
      .from = newest->generation == kLives ? ResumePoint::kReplica : ResumePoint::kInMemoryCheckpoint,
      .source_rank = static_cast<int>(newest - all.begin()),
      .config_json = {},
      .state = {}};
  std::vector<bool> lacks;
  for (const HeldStep& one : all) lacks.push_back(one != *newest);
  const bool sends = group.rank() == point.source_rank && std::ranges::count(lacks, true) > 0;
  const bool receives = lacks[group.rank()];
  if (!sends && !receives) return point;
  TrainState state = held.snapshot();
  broadcast_state(group, point.source_rank, lacks, program.size, state);
  if (receives) point.state = std::move(state);
  return point;
}

// A rank may have made steps whose state is of no use: with a peer, local replicas' are lost.
void forget_steps(TrainState& state) {
  state.step = 0;
  state.evaluations = {};
  for (OptimizerSlot& slot : state.optimizer) std::ranges::fill(slot.values, 0.0f);
}

ResumePoint begin_anew(const JobConfig& config, const RankInGeneration& place, const Program& program,
                       const Held& held, ProcessGroup& group, const Notice& notice) {
  CheckpointCandidate mine = look_at_disk(config, place, program, notice);
  const std::vector<std::int64_t> steps = gathered(group, mine.step);
  const int source = newest_of(steps);
  const std::int64_t newest = steps[static_cast<std::size_t>(source)];
  if (newest < 0 && mine.fault) throw WorkerError(*mine.fault);
  if (explicit_path(config) && first_generation(place) && place.local_rank == 0) {
    refuse_newer_checkpoints(config, newest);  // a later generation would take them for this run's own
  }
  TrainState start;
  // The rank that loads the checkpoint needs no other state.
  const bool loads = newest >= 0 && place.rank == source;
  if (loads) {
    start = load_chosen(config, program, std::move(mine));
    check_slots(start, slot_names(config.train));
    check_teacher_of(start, program);
  } else {
    start = held.snapshot();
    start.parameters.resize(program.size);
    if (newest < 0) forget_steps(start);
  }
  ResumePoint point;
  if (newest < 0 && config.train.init_from) {
    // Only rank 0's node needs the file.
    if (place.rank == 0) {
      or_throw(check_init(config));
      start.parameters = load_initial_parameters(config.train, program, notice);
    }
    std::vector<bool> lacks(steps.size(), true);
    lacks[0] = false;
    broadcast_state(group, 0, lacks, program.size, start);
  } else if (newest < 0) {
    initialize_parameters(program, config.train.seed, start.parameters);
  } else {
    point.from = ResumePoint::kCheckpoint;
    point.source_rank = source;
    std::vector<bool> lacks(steps.size(), true);
    lacks[static_cast<std::size_t>(source)] = false;
    broadcast_state(group, source, lacks, program.size, start);
    point.config_json = start.config_json;
  }
  point.state = std::move(start);
  return point;
}

}  // namespace

bool is_on_disk_after(std::int64_t step, const JobConfig& config, const RankInGeneration& place,
                      ProcessGroup& group, const Notice& notice) {
  std::int64_t mine = -1;
  if (place.local_rank == 0) {
    const auto there = list_checkpoints(config.output_dir);
    if (!there.empty() && there.rbegin()->first > step)
      mine = newest_step(config.output_dir, notice).value_or(-1);
  }
  return std::ranges::max(gathered(group, mine)) > step;
}

ResumePoint choose_start(const JobConfig& config, const RankInGeneration& place, const Program& program,
                         const Held& held, ProcessGroup& group, const Notice& notice) {
  stop_point(StopPoint::kChoosingStart);
  check_one_teacher(program, group);
  const std::vector<HeldStep> all = gathered(group, told(held));
  const HeldStep newest = std::ranges::max(all);
  const bool lives = newest.generation == kLives;
  if (newest.step >= 0 && (lives || !is_on_disk_after(newest.step, config, place, group, notice)))
    return go_on(all, program, held, group);
  return begin_anew(config, place, program, held, group, notice);
}

namespace {

std::optional<std::vector<float>> parameters_on_disk(const JobConfig& config, const Program& program,
                                                     std::int64_t step) {
  std::vector<fs::path> places{checkpoints_directory(config.output_dir)};
  if (explicit_path(config)) {
    const fs::path named = fs::absolute(config.train.resume_from_checkpoint.text);
    places.push_back((named.has_filename() ? named : named.parent_path()).parent_path());
  }
  for (const fs::path& place : places) {
    try {
      return load_parameters_of_step(place / step_name(step), program, step);
    } catch (const WorkerError&) {
      // Another directory, or another rank, may have it.
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<float>> fetch_parameters(const JobConfig& config, const RankInGeneration& place,
                                                   const Program& program, std::int64_t step,
                                                   ProcessGroup& group) {
  std::optional<std::vector<float>> found;
  if (place.rank == 0 || place.local_rank == 0) found = parameters_on_disk(config, program, step);
  const std::vector<std::int64_t> holders = gathered(group, std::int64_t{found ? 1 : 0});
  const int source = newest_of(holders);
  if (holders[static_cast<std::size_t>(source)] == 0) return std::nullopt;
  if (source != 0 && (place.rank == 0 || place.rank == source)) {
    if (!found) found.emplace(program.size);
    std::vector<bool> lacks(holders.size());
    lacks[0] = true;
    broadcast(group, source, lacks, bytes_of(*found));
  }
  if (place.rank != 0) return std::nullopt;
  return found;
}

}  // namespace dtrun::worker
