#include "worker/trainer/local_replicas.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "worker/collective/tags.h"
#include "worker/device/range.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {

std::chrono::milliseconds peer_patience(const TrainConfig& train) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  return std::min(kMost, kPeerPatience * train.steps_between_syncs());
}

StepResult LocalReplica::update(Replica& with, const UpdateRule& rule, float* sum) {
  std::vector<float*> vectors;
  for (const Buffer& slot : slots) vectors.push_back(slot.data());
  return with.update(rule, sum, parameters.data(), std::move(vectors));
}

LocalReplicas::LocalReplicas(Replica& replica, const TrainState& state, ProcessGroup& group, StepClock& clock)
    : replica_(replica),
      arithmetic_(replica.device->arithmetic()),
      clock_(clock),
      all_(group),
      replicas_(replica.config.train.local_replicas),
      share_(share_of_rank(replicas_, group.rank(), group.size())),
      group_(make_sub_group(group, static_cast<int>(share_.group.begin), static_cast<int>(share_.group.end))),
      all_reduce_(ReductionType::kTree, group, *replica.device, kStatisticsFloats + replica.program.size,
                  summed_buckets(replica.program), 1, peer_patience(replica.config.train)) {
  const std::size_t size = replica.program.size, outer = replica.state.slots.size();
  const std::size_t slots = optimizer_slot_names(replica.config.train).size();
  for (std::int64_t number = share_.replicas.begin; number < share_.replicas.end; ++number) {
    LocalReplica one{.number = number, .parameters = arithmetic_.allocate(Where::kDevice, size), .slots = {}};
    arithmetic_.copy(*replica.stream, one.parameters.data(), state.parameters.data(), size);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const std::vector<float>& values =
          state.optimizer[outer + static_cast<std::size_t>(number) * slots + slot].values;
      one.slots.push_back(arithmetic_.allocate(Where::kDevice, size));
      arithmetic_.copy(*replica.stream, one.slots.back().data(), values.data(), size);
    }
    own_.push_back(std::move(one));
  }
  replica.stream->wait();
}

void LocalReplicas::hand_in(const LocalReplica& one) {
  Stream& stream = *replica_.stream;
  float* const out = all_reduce_.take(one.number, stream);
  const std::vector<float> stats{static_cast<float>(one.stats.loss), static_cast<float>(one.stats.correct),
                                 static_cast<float>(one.stats.targets)};
  std::fill_n(out, kStatisticsFloats, 0.0f);
  arithmetic_.copy(stream, out, stats.data(), stats.size());
  arithmetic_.copy(stream, out + kStatisticsFloats, one.parameters.data(), replica_.program.size);
  for (std::size_t bucket = 0; bucket < replica_.program.buckets.size(); ++bucket)
    all_reduce_.complete(one.number, static_cast<int>(bucket), stream);
}

StepResult LocalReplicas::sync() {
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range range(*replica_.device, Operation::Kind::kExchange);
  all_reduce_.begin(replicas_);
  for (const LocalReplica& one : own_)
    if (share_.handed_in.begin <= one.number && one.number < share_.handed_in.end) hand_in(one);
  float* const sum = all_reduce_.finish();
  const StepResult result = replica_.outer_update(outer_rule(replica_.config.train), sum);
  for (LocalReplica& one : own_) {
    arithmetic_.copy(*replica_.stream, one.parameters.data(), replica_.state.parameters.data(),
                     replica_.program.size);
    one.stats = {};
  }
  replica_.stream->wait();
  return result;
}

void LocalReplicas::collect(TrainState* copy) {
  std::vector<char> keeps(static_cast<std::size_t>(all_.size()));
  keeps[static_cast<std::size_t>(all_.rank())] = copy != nullptr;
  all_.all_gather(bytes_of(keeps));
  const std::size_t size = replica_.program.size, slots = own_[0].slots.size();
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (std::int64_t number = 0; number < replicas_; ++number) {
    const int holder = rank_of_replica(replicas_, number, all_.size());
    const std::size_t first = replica_.state.slots.size() + static_cast<std::size_t>(number) * slots;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (holder == all_.rank()) {
        const float* const values =
            own_[static_cast<std::size_t>(number - share_.replicas.begin)].slots[slot].data();
        for (int rank = 0; rank < all_.size(); ++rank)
          if (keeps[static_cast<std::size_t>(rank)] && rank != holder)
            sends.push_back(
                {.peer = rank, .tag = kTagBroadcast, .bytes = std::as_bytes(std::span(values, size))});
        if (copy != nullptr) std::copy_n(values, size, copy->optimizer[first + slot].values.data());
      } else if (copy != nullptr) {
        receives.push_back(
            {.peer = holder, .tag = kTagBroadcast, .bytes = bytes_of(copy->optimizer[first + slot].values)});
      }
    }
  }
  all_.start(sends, receives)->wait();
}

}  // namespace dtrun::worker
