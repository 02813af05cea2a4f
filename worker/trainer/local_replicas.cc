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
#include "worker/trainer/recovery/hand_over.h"
#include "worker/vector/loops.h"

namespace dtrun::worker {

std::chrono::milliseconds peer_patience(const TrainConfig& train) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  return std::min(kMost, kPeerPatience * train.steps_between_syncs());
}

namespace {

// Those of summed_buckets() as far as a shorter vector goes.
std::vector<VectorRange> buckets_up_to(const Program& program, std::size_t size) {
  std::vector<VectorRange> ranges;
  for (const VectorRange& bucket : summed_buckets(program))
    if (bucket.begin < size) ranges.push_back({bucket.begin, std::min(bucket.end, size)});
  return ranges;
}

StepStats stats_in(const float* sum) { return {.loss = sum[0], .correct = sum[1], .targets = sum[2]}; }

}  // namespace

LocalReplicas::LocalReplicas(Replica& replica, ProcessGroup& group, StepClock& clock, std::int64_t last)
    : replica_(replica),
      train_(replica.config.train),
      arithmetic_(replica.device->arithmetic()),
      clock_(clock),
      all_(group),
      times_(sync_times(train_, last)),
      share_(share_of_rank(train_.local_replicas, group.rank(), group.size())),
      group_(make_sub_group(group, static_cast<int>(share_.group.begin), static_cast<int>(share_.group.end))),
      beside_(make_sub_group(group, 0, group.size(), kTagsBeside)),
      home_stream_(replica.home().arithmetic().make_stream()),
      all_reduce_(ReductionType::kTree, *beside_, replica.home(), kStatisticsFloats + elements(0).size(),
                  buckets_up_to(replica.program, kStatisticsFloats + elements(0).size()), 1,
                  peer_patience(train_)) {
  if (times_.delay > 0)
    stats_.emplace(ReductionType::kTree, *beside_, replica.home(), kStatisticsFloats,
                   std::vector<VectorRange>{{0, kStatisticsFloats}}, 1, peer_patience(train_));
}

LocalReplicas::~LocalReplicas() {
  if (on_its_way_) all_.abort();
}

std::int64_t LocalReplicas::done() const {
  return std::ranges::min_element(replica_.local, {}, &LocalReplica::step)->step;
}

VectorRange LocalReplicas::elements(int fragment) const {
  return elements_of(fragment, times_.fragments, replica_.program.size);
}

bool LocalReplicas::hands_in(const LocalReplica& one) const {
  return share_.handed_in.begin <= one.number && one.number < share_.handed_in.end;
}

// The last fragments' vectors end in zeros. `values`: in the device's memory or the host's.
void LocalReplicas::hand_in(const LocalReplica& one, TreeAllReduce& to, std::span<const float> values) {
  float* const out = to.take(one.number, *home_stream_);
  std::fill_n(out, to.size(), 0.0f);
  out[0] = static_cast<float>(one.stats.loss);
  out[1] = static_cast<float>(one.stats.correct);
  out[2] = static_cast<float>(one.stats.targets);
  if (!values.empty())
    arithmetic_.copy(*replica_.stream, out + kStatisticsFloats, values.data(), values.size());
  replica_.stream->wait();
  for (int bucket = 0; bucket < to.buckets(); ++bucket) to.complete(one.number, bucket, *home_stream_);
}

void LocalReplicas::start(int fragment) {
  stop_point(StopPoint::kHandingIn);
  const VectorRange range = elements(fragment);
  all_reduce_.begin(train_.local_replicas);
  for (const LocalReplica& one : replica_.local) {
    const float* const values = arrival_ ? one.handed_in.data() : one.parameters.data() + range.begin;
    if (hands_in(one)) hand_in(one, all_reduce_, {values, range.size()});
  }
}

StepResult LocalReplicas::outer_step(int fragment, float* sum) {
  return replica_.outer_update(outer_rule(train_), sum, elements(fragment));
}

// What meets at this step without a delay: a fragment, or at the run's end all. All replicas go on from where
// the outer step takes it.
StepResult LocalReplicas::meet(std::int64_t step) {
  const bool all = step == times_.last;
  const int first = all ? 0 : times_.fragment_of(step), end = all ? times_.fragments : first + 1;
  std::vector<std::vector<float>> sums;
  float* sum = nullptr;
  for (int fragment = first; fragment < end; ++fragment) {
    if (sum != nullptr) sums.emplace_back(sum, sum + all_reduce_.size());
    start(fragment);
    sum = all_reduce_.finish();
  }
  StepResult result;
  double squares = 0;
  for (int fragment = first; fragment < end; ++fragment) {
    result = outer_step(fragment, fragment + 1 < end ? sums[static_cast<std::size_t>(fragment)].data() : sum);
    squares += result.norm * result.norm;
    const VectorRange range = elements(fragment);
    for (LocalReplica& one : replica_.local)
      arithmetic_.copy(*replica_.stream, one.parameters.data() + range.begin,
                       replica_.state.parameters.data() + range.begin, range.size());
  }
  if (end > first + 1) result.norm = std::sqrt(squares);
  return result;
}

void LocalReplicas::begin() {
  const std::int64_t sync = replica_.state.step;
  arrival_ = times_.arrival(sync);
  if (!arrival_) return;
  const VectorRange range = elements(times_.fragment_of(sync));
  for (LocalReplica& one : replica_.local)
    if (one.step == sync)
      arithmetic_.copy(*replica_.stream, one.handed_in.data(), one.parameters.data() + range.begin,
                       range.size());
  replica_.stream->wait();
  if (replica_.state.arrived) return;
  on_its_way_ = true;
  start(times_.fragment_of(sync));
}

void LocalReplicas::arrive(std::int64_t step) {
  if (arrival_ != step) return;
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range exchange(*replica_.device, Operation::Kind::kExchange);
  const int fragment = times_.fragment_of(replica_.state.step);
  if (on_its_way_) {
    float* const sum = all_reduce_.finish();
    on_its_way_ = false;
    replica_.log.outer_norm = outer_step(fragment, sum).norm;
    replica_.state.arrived = true;
  }
  for (LocalReplica& one : replica_.local)
    if (!one.arrived && one.step == step) go_half_way(one, elements(fragment));
  stop_point(StopPoint::kArrived);
}

// From where the replica is to the outer state. On the host, so that no device needs an operation for it.
void LocalReplicas::go_half_way(LocalReplica& one, const VectorRange& range) {
  float* const there = one.parameters.data() + range.begin;
  std::vector<float> values(range.size());
  arithmetic_.copy(*replica_.stream, values.data(), there, range.size());
  replica_.stream->wait();
  vector::loops().add(values.data(), replica_.state.parameters.data() + range.begin, values.data(),
                      range.size());
  vector::loops().scale(values.data(), 0.5f, values.data(), range.size());
  arithmetic_.copy(*replica_.stream, there, values.data(), range.size());
  replica_.stream->wait();
  one.arrived = true;
}

StepStats LocalReplicas::sum_of_stats() {
  stats_->begin(train_.local_replicas);
  for (const LocalReplica& one : replica_.local)
    if (hands_in(one)) hand_in(one, *stats_, {});
  return stats_in(stats_->finish());
}

StepResult LocalReplicas::sync(std::int64_t step) {
  StepClock::Scope waiting(clock_, StepClock::kGradients);
  const Range exchange(*replica_.device, Operation::Kind::kExchange);
  arrival_.reset();
  StepResult result;
  if (step == times_.last || times_.delay == 0) {
    result = meet(step);
  } else {
    result.stats = sum_of_stats();
    result.norm = replica_.log.outer_norm;
  }
  replica_.stream->wait();
  replica_.state.arrived = false;
  for (LocalReplica& one : replica_.local) one.arrived = false, one.stats = {};
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
    const std::size_t first = replica_.state.slots.size() + static_cast<std::size_t>(number) * vectors;
    for (std::size_t i = 0; i < vectors; ++i) {
      if (holder == all_.rank() && (copy != nullptr || others_keep)) {
        const float* const values = on_host(
            kept_vectors(train_, replica_.local[static_cast<std::size_t>(number - share_.replicas.begin)])[i],
            copy != nullptr ? &copy->optimizer[first + i].values : nullptr);
        for (int rank = 0; rank < all_.size(); ++rank)
          if (keeps[static_cast<std::size_t>(rank)] && rank != holder)
            sends.push_back(
                {.peer = rank, .tag = kTagBroadcast, .bytes = std::as_bytes(std::span(values, size))});
      } else if (holder != all_.rank() && copy != nullptr) {
        receives.push_back(
            {.peer = holder, .tag = kTagBroadcast, .bytes = bytes_of(copy->optimizer[first + i].values)});
      }
    }
  }
  all_.start(sends, receives)->wait();
}

}  // namespace dtrun::worker
