#include "worker/trainer/local_replicas.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "worker/base/stop_point.h"
#include "worker/collective/tags.h"
#include "worker/device/range.h"
#include "worker/optim/optimizer.h"
#include "worker/vector/loops.h"

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

namespace {

constexpr int kStats = 3;  // of the statistics' floats

// Those of summed_buckets() as far as a shorter vector goes.
std::vector<VectorRange> buckets_up_to(const Program& program, std::size_t size) {
  std::vector<VectorRange> ranges;
  for (const VectorRange& bucket : summed_buckets(program))
    if (bucket.begin < size) ranges.push_back({bucket.begin, std::min(bucket.end, size)});
  return ranges;
}

StepStats stats_in(const float* sum) { return {.loss = sum[0], .correct = sum[1], .targets = sum[2]}; }

}  // namespace

LocalReplicas::LocalReplicas(Replica& replica, const TrainState& state, ProcessGroup& group, StepClock& clock,
                             std::int64_t last)
    : replica_(replica),
      train_(replica.config.train),
      arithmetic_(replica.device->arithmetic()),
      clock_(clock),
      all_(group),
      times_{.every = train_.steps_between_syncs(),
             .fragments = train_.sync_fragments,
             .delay = train_.sync_delay,
             .last = last},
      share_(share_of_rank(train_.local_replicas, group.rank(), group.size())),
      group_(make_sub_group(group, static_cast<int>(share_.group.begin), static_cast<int>(share_.group.end))),
      beside_(make_sub_group(group, 0, group.size(), kTagsBeside)),
      all_reduce_(ReductionType::kTree, *beside_, *replica.device, kStatisticsFloats + elements(0).size(),
                  buckets_up_to(replica.program, kStatisticsFloats + elements(0).size()), 1,
                  peer_patience(train_)) {
  if (times_.delay > 0)
    stats_.emplace(ReductionType::kTree, *beside_, *replica.device, kStatisticsFloats,
                   std::vector<VectorRange>{{0, kStatisticsFloats}}, 1, peer_patience(train_));
  const std::size_t size = replica.program.size, vectors = replica_vector_names(train_).size();
  for (std::int64_t number = share_.replicas.begin; number < share_.replicas.end; ++number) {
    LocalReplica one{.number = number, .parameters = arithmetic_.allocate(Where::kDevice, size), .slots = {}};
    for (std::size_t slot = 0; slot < optimizer_slot_names(train_).size(); ++slot)
      one.slots.push_back(arithmetic_.allocate(Where::kDevice, size));
    arithmetic_.copy(*replica.stream, one.parameters.data(), state.parameters.data(), size);
    const std::size_t first = replica.state.slots.size() + static_cast<std::size_t>(number) * vectors;
    const std::vector<float*> own = vectors_of(one);
    for (std::size_t i = 0; i < own.size() && state.step > 0; ++i)
      arithmetic_.copy(*replica.stream, own[i], state.optimizer[first + i].values.data(), size);
    own_.push_back(std::move(one));
  }
  replica.stream->wait();
}

LocalReplicas::~LocalReplicas() {
  if (arrival_) all_.abort();
}

// In the order of replica_vector_names().
std::vector<float*> LocalReplicas::vectors_of(LocalReplica& one) const {
  std::vector<float*> vectors;
  if (train_.replicas_stay_apart()) vectors.push_back(one.parameters.data());
  for (Buffer& slot : one.slots) vectors.push_back(slot.data());
  return vectors;
}

VectorRange LocalReplicas::elements(int fragment) const {
  return elements_of(fragment, times_.fragments, replica_.program.size);
}

bool LocalReplicas::hands_in(const LocalReplica& one) const {
  return share_.handed_in.begin <= one.number && one.number < share_.handed_in.end;
}

// The last fragments' vectors end in zeros.
void LocalReplicas::hand_in(const LocalReplica& one, TreeAllReduce& to, const VectorRange& elements) {
  Stream& stream = *replica_.stream;
  float* const out = to.take(one.number, stream);
  const float stats[kStats]{static_cast<float>(one.stats.loss), static_cast<float>(one.stats.correct),
                            static_cast<float>(one.stats.targets)};
  std::fill_n(out, to.size(), 0.0f);
  arithmetic_.copy(stream, out, stats, kStats);
  if (elements.size() > 0)
    arithmetic_.copy(stream, out + kStatisticsFloats, one.parameters.data() + elements.begin,
                     elements.size());
  for (int bucket = 0; bucket < to.buckets(); ++bucket) to.complete(one.number, bucket, stream);
}

void LocalReplicas::start(int fragment) {
  all_reduce_.begin(train_.local_replicas);
  for (const LocalReplica& one : own_)
    if (hands_in(one)) hand_in(one, all_reduce_, elements(fragment));
  stop_point(StopPoint::kHandedIn);
}

StepResult LocalReplicas::finish(int fragment) {
  return replica_.outer_update(outer_rule(train_), all_reduce_.finish(), elements(fragment));
}

// All replicas go on from where the outer step takes a fragment.
StepResult LocalReplicas::meet(int fragment) {
  start(fragment);
  const StepResult result = finish(fragment);
  const VectorRange range = elements(fragment);
  for (LocalReplica& one : own_)
    arithmetic_.copy(*replica_.stream, one.parameters.data() + range.begin,
                     replica_.state.parameters.data() + range.begin, range.size());
  return result;
}

void LocalReplicas::begin() {
  arrival_ = times_.arrival(replica_.state.step);
  if (arrival_) start(times_.fragment_of(replica_.state.step));
}

void LocalReplicas::arrive(std::int64_t step) {
  if (arrival_ != step) return;
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range exchange(*replica_.device, Operation::Kind::kExchange);
  const int fragment = times_.fragment_of(replica_.state.step);
  const VectorRange range = elements(fragment);
  replica_.log.outer_norm = finish(fragment).norm;
  arrival_.reset();
  for (LocalReplica& one : own_) {
    float* const at = one.parameters.data() + range.begin;
    vector::loops().add(at, replica_.state.parameters.data() + range.begin, at, range.size());
    vector::loops().scale(at, 0.5f, at, range.size());
  }
  stop_point(StopPoint::kArrived);
}

StepStats LocalReplicas::sum_of_stats() {
  stats_->begin(train_.local_replicas);
  for (const LocalReplica& one : own_)
    if (hands_in(one)) hand_in(one, *stats_, {});
  return stats_in(stats_->finish());
}

StepResult LocalReplicas::sync(std::int64_t step) {
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range exchange(*replica_.device, Operation::Kind::kExchange);
  StepResult result{.stats = {}, .norm = replica_.log.outer_norm};
  if (step == times_.last) {
    double squares = 0;
    for (int fragment = 0; fragment < times_.fragments; ++fragment) {
      result = meet(fragment);
      squares += result.norm * result.norm;
    }
    if (times_.fragments > 1) result.norm = std::sqrt(squares);
  } else if (times_.delay == 0) {
    result = meet(times_.fragment_of(step));
  } else {
    result.stats = sum_of_stats();
  }
  replica_.stream->wait();
  for (LocalReplica& one : own_) one.stats = {};
  return result;
}

void LocalReplicas::end() {
  all_reduce_.end();
  if (stats_) stats_->end();
}

void LocalReplicas::collect(TrainState* copy) {
  std::vector<char> keeps(static_cast<std::size_t>(all_.size()));
  keeps[static_cast<std::size_t>(all_.rank())] = copy != nullptr;
  all_.all_gather(bytes_of(keeps));
  const std::size_t size = replica_.program.size, vectors = replica_vector_names(train_).size();
  std::vector<OutMessage> sends;
  std::vector<InMessage> receives;
  for (std::int64_t number = 0; number < train_.local_replicas; ++number) {
    const int holder = rank_of_replica(train_.local_replicas, number, all_.size());
    const std::size_t first = replica_.state.slots.size() + static_cast<std::size_t>(number) * vectors;
    for (std::size_t i = 0; i < vectors; ++i) {
      if (holder == all_.rank()) {
        const float* const values =
            vectors_of(own_[static_cast<std::size_t>(number - share_.replicas.begin)])[i];
        for (int rank = 0; rank < all_.size(); ++rank)
          if (keeps[static_cast<std::size_t>(rank)] && rank != holder)
            sends.push_back(
                {.peer = rank, .tag = kTagBroadcast, .bytes = std::as_bytes(std::span(values, size))});
        if (copy != nullptr) std::copy_n(values, size, copy->optimizer[first + i].values.data());
      } else if (copy != nullptr) {
        receives.push_back(
            {.peer = holder, .tag = kTagBroadcast, .bytes = bytes_of(copy->optimizer[first + i].values)});
      }
    }
  }
  all_.start(sends, receives)->wait();
}

}  // namespace dtrun::worker
