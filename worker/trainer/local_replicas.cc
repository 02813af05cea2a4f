#include "worker/trainer/local_replicas.h"

#include <algorithm>
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
      train_(replica.config.train),
      arithmetic_(replica.device->arithmetic()),
      clock_(clock),
      all_(group),
      share_(share_of_rank(train_.local_replicas, group.rank(), group.size())),
      group_(make_sub_group(group, static_cast<int>(share_.group.begin), static_cast<int>(share_.group.end))),
      home_stream_(replica.home().arithmetic().make_stream()),
      all_reduce_(group, replica.home(), kStatisticsFloats + replica.program.size,
                  summed_buckets(replica.program), 1, peer_patience(train_)) {
  const auto copied = [&](const std::vector<float>& values) {
    Buffer buffer = arithmetic_.allocate(Where::kDevice, values.size());
    arithmetic_.copy(*replica.stream, buffer.data(), values.data(), values.size());
    return buffer;
  };
  for (std::int64_t number = share_.replicas.begin; number < share_.replicas.end; ++number) {
    LocalReplica one{.number = number, .parameters = copied(state.parameters), .slots = {}};
    for (std::size_t slot = 0; slot < optimizer_slot_names(train_).size(); ++slot)
      one.slots.push_back(copied(state.optimizer[first_slot(number) + slot].values));
    own_.push_back(std::move(one));
  }
  replica.stream->wait();
}

std::size_t LocalReplicas::first_slot(std::int64_t number) const {
  return replica_.state.slots.size() + static_cast<std::size_t>(number) * optimizer_slot_names(train_).size();
}

void LocalReplicas::hand_in(const LocalReplica& one) {
  float* const out = all_reduce_.take(one.number, *home_stream_);
  std::fill_n(out, kStatisticsFloats, 0.0f);
  out[0] = static_cast<float>(one.stats.loss);
  out[1] = static_cast<float>(one.stats.correct);
  out[2] = static_cast<float>(one.stats.targets);
  arithmetic_.copy(*replica_.stream, out + kStatisticsFloats, one.parameters.data(), replica_.program.size);
  replica_.stream->wait();
  for (std::size_t bucket = 0; bucket < replica_.program.buckets.size(); ++bucket)
    all_reduce_.complete(one.number, static_cast<int>(bucket), *home_stream_);
}

StepResult LocalReplicas::sync() {
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range exchange(*replica_.device, Operation::Kind::kExchange);
  all_reduce_.begin(train_.local_replicas);
  for (const LocalReplica& one : own_)
    if (share_.handed_in.begin <= one.number && one.number < share_.handed_in.end) hand_in(one);
  float* const sum = all_reduce_.finish();
  const StepResult result = replica_.outer_update(outer_rule(train_), sum);
  for (LocalReplica& one : own_) {
    arithmetic_.copy(*replica_.stream, one.parameters.data(), replica_.state.parameters.data(),
                     replica_.program.size);
    one.stats = {};
  }
  replica_.stream->wait();
  return result;
}

void LocalReplicas::copy_own(TrainState& copy) const {
  for (std::size_t slot = replica_.state.slots.size(); slot < copy.optimizer.size(); ++slot)
    if (slot < first_slot(share_.replicas.begin) || slot >= first_slot(share_.replicas.end))
      copy.optimizer[slot].values = {};
  for (const LocalReplica& one : own_) {
    for (std::size_t slot = 0; slot < one.slots.size(); ++slot) {
      std::vector<float>& values = copy.optimizer[first_slot(one.number) + slot].values;
      values.resize(one.slots[slot].size());
      arithmetic_.copy(*replica_.stream, values.data(), one.slots[slot].data(), values.size());
    }
  }
  replica_.stream->wait();
}

void LocalReplicas::collect(TrainState* copy) {
  std::vector<char> keeps(static_cast<std::size_t>(all_.size()));
  keeps[static_cast<std::size_t>(all_.rank())] = copy != nullptr;
  all_.all_gather(bytes_of(keeps));
  const std::size_t size = replica_.program.size, slots = optimizer_slot_names(train_).size();
  std::vector<std::vector<float>> sent;
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  const auto on_host = [&](const float* values, std::vector<float>* kept) -> const float* {
    if (kept == nullptr && arithmetic_.device_is_host()) return values;
    float* const to = (kept != nullptr ? *kept : sent.emplace_back(size)).data();
    arithmetic_.copy(*replica_.stream, to, values, size);
    replica_.stream->wait();
    return to;
  };
  const bool others_keep = std::ranges::count(keeps, 1) > keeps[static_cast<std::size_t>(all_.rank())];
  for (std::int64_t number = 0; number < train_.local_replicas; ++number) {
    const int holder = rank_of_replica(train_.local_replicas, number, all_.size());
    for (std::size_t slot = 0; slot < slots; ++slot) {
      std::vector<float>* const kept =
          copy != nullptr ? &copy->optimizer[first_slot(number) + slot].values : nullptr;
      if (kept != nullptr) kept->resize(size);
      if (holder == all_.rank() && (copy != nullptr || others_keep)) {
        const LocalReplica& one = own_[static_cast<std::size_t>(number - share_.replicas.begin)];
        const float* const values = on_host(one.slots[slot].data(), kept);
        for (int rank = 0; rank < all_.size(); ++rank)
          if (keeps[static_cast<std::size_t>(rank)] && rank != holder)
            sends.push_back(
                {.peer = rank, .tag = kTagBroadcast, .bytes = std::as_bytes(std::span(values, size))});
      } else if (holder != all_.rank() && copy != nullptr) {
        receives.push_back({.peer = holder, .tag = kTagBroadcast, .bytes = bytes_of(*kept)});
      }
    }
  }
  all_.start(sends, receives)->wait();
}

}  // namespace dtrun::worker
