#include "worker/trainer/recovery/replica.h"

#include <utility>

#include "proto/core/text.h"
#include "worker/base/bits_hash.h"
#include "worker/base/error.h"
#include "worker/checkpoint/teacher.h"
#include "worker/data/dataset.h"
#include "worker/data/node_memory.h"
#include "worker/device/cpu/fingerprint.h"
#include "worker/device/range.h"

namespace dtrun::worker {
namespace {

// Adjacent parameters become one range.
std::vector<VectorRange> decaying_ranges(const Program& program) {
  std::vector<VectorRange> ranges;
  for (const Parameter& parameter : program.parameters) {
    if (!parameter.decays) continue;
    if (ranges.empty() || ranges.back().end != parameter.offset)
      ranges.push_back({parameter.offset, parameter.offset});
    ranges.back().end = parameter.offset + parameter.size;
  }
  return ranges;
}

std::vector<RunningStatistics> running_statistics(const Program& program) {
  std::vector<RunningStatistics> all;
  for (const Node& node : program.nodes) {
    const auto* const norm = std::get_if<BatchNorm>(&node.op);
    if (norm == nullptr) continue;
    const auto channels = static_cast<std::size_t>(norm->channels);
    const std::size_t pixels = program.values[node.in[0]].size() / channels;
    all.push_back({.begin = program.parameters[norm->mean].offset,
                   .channels = channels,
                   .values = static_cast<float>(pixels),
                   .momentum = static_cast<float>(norm->momentum)});
  }
  return all;
}

Program program_of(const JobConfig& config, const Dataset& data) {
  Program program = make_program(config, data.spec(), data.values());
  program.teacher = load_teacher(config.train, program);
  return program;
}

DataIdentity identity_of(const Dataset& train, const Dataset& test) {
  const std::uint64_t hash = joint_hash({train.contents(), test.contents()});
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&hash);
  return {.train = train.size(), .test = test.size(), .contents = hexadecimal({bytes, sizeof hash})};
}

}  // namespace

TeacherFile teacher_file(const Program& program) {
  if (program.teacher == nullptr) return {};
  return {.path = program.teacher->path, .sha256 = program.teacher->sha256};
}

TrainState empty_state(const TrainConfig& train) {
  TrainState state;
  for (const std::string& name : slot_names(train)) state.optimizer.push_back({name, {}});
  return state;
}

Datasets load_datasets(const JobConfig& config, int memory) {
  NodeMemory of_node(memory);
  Datasets data{load_dataset(config.data, Split::kTrain, of_node),
                load_dataset(config.data, Split::kTest, of_node)};
  of_node.seal();
  data.identity = identity_of(*data.train, *data.test);
  if (data.train->spec() == data.test->spec()) return data;
  throw WorkerError(kExitNoInput,
                    config.data.path +
                        ": its test samples have another shape or other classes than those "
                        "it trains on; set data.path to a data set whose parts belong together");
}

std::string fingerprint_on_cpu(const JobConfig& config) {
  const DatasetFacts data = value_or_throw(check_dataset(config.data));
  return cpu_fingerprint(make_program(config, data.spec));
}

Replica::Replica(const JobConfig& config, const Datasets& data, int lanes, std::unique_ptr<Device> on)
    : config(config),
      data(data),
      program(program_of(config, *data.train)),
      device(std::move(on)),
      host(config.train.has_local_replicas() && !device->arithmetic().device_is_host() ? make_cpu_device()
                                                                                       : nullptr),
      stream(device->arithmetic().make_stream()),
      lanes(*device, program, lanes, config.train.micro_batch_size),
      decaying_(decaying_ranges(program)),
      statistics_(running_statistics(program)) {
  stream->set_name("update");
  state.parameters = arithmetic().allocate(Where::kDevice, program.size);
  const bool local = config.train.has_local_replicas();
  for (const std::string& name : local ? outer_slot_names(config.train) : slot_names(config.train))
    state.slots.push_back({name, arithmetic().allocate(Where::kDevice, program.size)});
  if (host) for_lanes_ = device->arithmetic().allocate(Where::kDevice, program.size);
}

const float* Replica::parameters_for_lanes() {
  if (!for_lanes_) return state.parameters.data();
  device->arithmetic().copy(*stream, for_lanes_.data(), state.parameters.data(), program.size);
  stream->wait();
  return for_lanes_.data();
}

// One pass over the memory, also if the values are in host memory already.
std::vector<float> Replica::on_host(const Buffer& values) const {
  if (arithmetic().device_is_host()) return {values.data(), values.data() + values.size()};
  std::vector<float> copy(values.size());
  arithmetic().copy(*stream, copy.data(), values.data(), values.size());
  stream->wait();
  return copy;
}

TrainState Replica::snapshot() const {
  TrainState copy{.step = state.step,
                  .parameters = {},
                  .optimizer = {},
                  .config_json = state.config_json,
                  .evaluations = log.evaluations,
                  .device = device->fingerprint(),
                  .teacher = teacher_file(program),
                  .data = data.identity};
  if (state.has_values) copy.parameters = on_host(state.parameters);
  for (const ReplicaState::Slot& slot : state.slots)
    copy.optimizer.push_back({slot.name, on_host(slot.values)});
  const std::vector<std::string> names = slot_names(config.train);
  for (std::size_t i = state.slots.size(); i < names.size(); ++i)  // local replicas'
    copy.optimizer.push_back({names[i], std::vector<float>(program.size)});
  return copy;
}

std::vector<float*> Replica::slots() const {
  std::vector<float*> all;
  for (const ReplicaState::Slot& slot : state.slots) all.push_back(slot.values.data());
  return all;
}

std::vector<float*> Replica::vectors() const {
  std::vector<float*> all = slots();
  all.insert(all.begin(), state.parameters.data());
  return all;
}

void Replica::copy_out(Stream& on, std::span<const float* const> from, TrainState& to) const {
  arithmetic().copy(on, to.parameters.data(), from[0], program.size);
  for (std::size_t i = 0; i + 1 < from.size(); ++i)
    arithmetic().copy(on, to.optimizer[i].values.data(), from[1 + i], program.size);
  on.wait();
}

void Replica::make_room_for_snapshots() {
  if (snapshot_) return;
  snapshot_ = arithmetic().spare(vectors().size() * program.size);
  if (!snapshot_) return;
  copying_ = arithmetic().make_stream();
  copying_->set_name("snapshot");
}

void Replica::begin_snapshot(TrainState& copy) {
  const std::vector<float*> now = vectors();
  if (snapshot_) {
    for (std::size_t i = 0; i < now.size(); ++i)
      arithmetic().copy(*stream, snapshot_.data() + i * program.size, now[i], program.size);
    taken_ = stream->record();
  } else {
    copy_out(*stream, now, copy);
  }
  copy.step = state.step;
  copy.config_json = state.config_json;
  copy.evaluations = log.evaluations;
  copy.device = device->fingerprint();
  copy.teacher = teacher_file(program);
  copy.data = data.identity;
}

void Replica::finish_snapshot(TrainState& copy) const {
  if (!snapshot_) return;
  copying_->after(taken_);
  std::vector<const float*> from;
  for (std::size_t i = 0; i < vectors().size(); ++i) from.push_back(snapshot_.data() + i * program.size);
  copy_out(*copying_, from, copy);
}

std::vector<std::uint64_t> Replica::parameter_hashes() const {
  std::vector<float> copy;
  if (!arithmetic().device_is_host()) copy = on_host(state.parameters);
  const float* const values = copy.empty() ? state.parameters.data() : copy.data();
  std::vector<std::uint64_t> hashes;
  for (const Parameter& parameter : program.parameters)
    hashes.push_back(bits_hash({values + parameter.offset, parameter.size}));
  return hashes;
}

void Replica::restore(const TrainState& from) {
  arithmetic().copy(*stream, state.parameters.data(), from.parameters.data(), program.size);
  for (std::size_t i = 0; i < state.slots.size(); ++i)
    arithmetic().copy(*stream, state.slots[i].values.data(), from.optimizer[i].values.data(), program.size);
  stream->wait();
  state.step = from.step;
  state.config_json = from.config_json;
  state.has_values = true;
}

UpdatedVectors Replica::updated(float* parameters, std::vector<float*> slots) const {
  return {.size = program.size,
          .parameters = parameters,
          .slots = std::move(slots),
          .decaying = decaying_,
          .running = program.running,
          .statistics = statistics_};
}

Parallel Replica::on_lanes() {
  return [this](const auto& work) { lanes.run([&](int index, Lane&) { work(index, lanes.size()); }); };
}

StepResult Replica::update(const UpdateRule& rule, float* sum) {
  return update(rule, sum, state.parameters.data(), slots());
}

StepResult Replica::update(const UpdateRule& rule, float* sum, float* parameters, std::vector<float*> slots) {
  const Range range(*device, Operation::Kind::kUpdate);
  return device->arithmetic().update(*stream, rule, sum, updated(parameters, std::move(slots)), on_lanes());
}

StepResult Replica::outer_update(const OuterRule& rule, float* sum) {
  const Range range(*device, Operation::Kind::kUpdate);
  return arithmetic().outer_update(*stream, rule, sum, updated(state.parameters.data(), slots()), on_lanes());
}

}  // namespace dtrun::worker
