#include "worker/trainer/recovery/hand_over.h"

#include <algorithm>
#include <span>
#include <utility>

#include "worker/base/stop_point.h"
#include "worker/collective/tags.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {
namespace {

std::size_t floats_handed_in(const Replica& replica) {
  const TrainConfig& train = replica.config.train;
  return train.sync_delay == 0 ? 0 : elements_of(0, train.sync_fragments, replica.program.size).size();
}

LocalReplica room_for(const Replica& replica, std::int64_t number, Arithmetic& arithmetic) {
  LocalReplica one;
  one.number = number;
  one.parameters = arithmetic.allocate(Where::kDevice, replica.program.size);
  for (std::size_t slot = 0; slot < optimizer_slot_names(replica.config.train).size(); ++slot)
    one.slots.push_back(arithmetic.allocate(Where::kDevice, replica.program.size));
  if (const std::size_t floats = floats_handed_in(replica); floats > 0)
    one.handed_in = replica.home().arithmetic().allocate(Where::kDevice, floats);
  return one;
}

// With the same vectors in other memory.
LocalReplica copy_of(const Replica& replica, const LocalReplica& from, Arithmetic& in_memory_of) {
  LocalReplica to = room_for(replica, from.number, in_memory_of);
  const auto copy = [&](const Buffer& out, const Buffer& in) {
    replica.device->arithmetic().copy(*replica.stream, out.data(), in.data(), in.size());
  };
  copy(to.parameters, from.parameters);
  for (std::size_t slot = 0; slot < to.slots.size(); ++slot) copy(to.slots[slot], from.slots[slot]);
  copy(to.handed_in, from.handed_in);
  replica.stream->wait();
  to.step = from.step, to.arrived = from.arrived, to.stats = from.stats;
  return to;
}

// As it was at the sync of `state`.
LocalReplica replica_at(const Replica& replica, const TrainState& state, std::int64_t number) {
  Arithmetic& arithmetic = replica.device->arithmetic();
  const TrainConfig& train = replica.config.train;
  LocalReplica one = room_for(replica, number, arithmetic);
  one.step = state.step;
  arithmetic.copy(*replica.stream, one.parameters.data(), state.parameters.data(), replica.program.size);
  const std::vector<float*> own = kept_vectors(train, one);
  const std::size_t first = outer_slot_names(train).size() + static_cast<std::size_t>(number) * own.size();
  for (std::size_t i = 0; i < own.size() && state.step > 0; ++i)
    arithmetic.copy(*replica.stream, own[i], state.optimizer[first + i].values.data(), replica.program.size);
  replica.stream->wait();
  return one;
}

struct Header {
  std::int64_t step = 0;
  StepStats stats;
  bool arrived = false;
};

// All that goes from one rank to another of a replica.
std::vector<std::span<std::byte>> parts_of(Header& header, LocalReplica& one) {
  std::vector<std::span<std::byte>> all{std::as_writable_bytes(std::span(&header, 1))};
  const auto add = [&](Buffer& values) {
    if (values.size() > 0) all.push_back(std::as_writable_bytes(std::span(values.data(), values.size())));
  };
  add(one.parameters);
  for (Buffer& slot : one.slots) add(slot);
  add(one.handed_in);
  return all;
}

class HandOver {
 public:
  HandOver(Replica& replica, ProcessGroup& group, std::int64_t last)
      : replica_(replica),
        train_(replica.config.train),
        device_(replica.device->arithmetic()),
        group_(group),
        times_(sync_times(train_, last)),
        alike_(replica_vector_names(train_).empty()) {}

  std::optional<LocalStart> run() {
    gather();
    std::optional<LocalStart> start = start_of_replicas(ranks_, train_.local_replicas, alike_);
    if (!start) return std::nullopt;
    bring_outer_state(*start);
    bring_replicas(*start);
    return start;
  }

 private:
  void gather() {
    const auto width = static_cast<std::size_t>(3 + train_.local_replicas);
    std::vector<std::int64_t> all(width * static_cast<std::size_t>(group_.size()), -1);
    const std::span<std::int64_t> mine =
        std::span(all).subspan(width * static_cast<std::size_t>(group_.rank()), width);
    if (!replica_.local.empty()) mine[0] = replica_.state.step;
    mine[1] = replica_.state.arrived ? 1 : 0;
    if (replica_.kept) mine[2] = replica_.kept->state.step;
    for (const LocalReplica& one : replica_.local) mine[3 + static_cast<std::size_t>(one.number)] = one.step;
    group_.all_gather(bytes_of(all));
    for (std::size_t at = 0; at < all.size(); at += width)
      ranks_.push_back({.sync = all[at],
                        .arrived = all[at + 1] == 1,
                        .steps = {all.begin() + static_cast<std::ptrdiff_t>(at + 3),
                                  all.begin() + static_cast<std::ptrdiff_t>(at + width)},
                        .kept = all[at + 2]});
  }

  // The ranks that are not where the source is: [rank].
  std::vector<bool> behind(const LocalStart& start) const {
    std::vector<bool> all;
    for (const HeldReplicas& rank : ranks_)
      all.push_back(rank.sync != start.sync || rank.arrived != start.arrived);
    return all;
  }

  // Nothing of this rank changes before all of it is here.
  void bring_outer_state(const LocalStart& start) {
    const std::vector<bool> lacks = behind(start);
    const bool gives = group_.rank() == start.source;
    const std::size_t size = replica_.program.size;
    const std::vector<float*> now = replica_.vectors();
    std::vector<std::vector<float>> come(lacks[static_cast<std::size_t>(group_.rank())] ? now.size() : 0,
                                         std::vector<float>(size));
    MetricsLog log = replica_.log;
    std::vector<OutMessage> sends;
    std::vector<InMessage> receives;
    const auto add = [&](int rank, std::span<std::byte> bytes) {
      if (gives) sends.push_back({.peer = rank, .tag = kTagBroadcast, .bytes = bytes});
      if (!gives) receives.push_back({.peer = start.source, .tag = kTagBroadcast, .bytes = bytes});
    };
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (!lacks[static_cast<std::size_t>(rank)] || (!gives && rank != group_.rank())) continue;
      add(rank, std::as_writable_bytes(std::span(&log, 1)));
      for (std::size_t i = 0; i < now.size(); ++i)
        add(rank, std::as_writable_bytes(std::span(gives ? now[i] : come[i].data(), size)));
    }
    stop_point(gives ? StopPoint::kSendingState : StopPoint::kReceivingState);
    group_.start(sends, receives)->wait();
    for (std::size_t i = 0; i < come.size(); ++i) std::ranges::copy(come[i], now[i]);
    if (!come.empty()) take_over(start, log);
  }

  void take_over(const LocalStart& start, const MetricsLog& log) {
    const HeldReplicas& before = ranks_[static_cast<std::size_t>(group_.rank())];
    std::erase_if(replica_.local,
                  [&](const LocalReplica& one) { return !is_current(before, one.number, start.sync); });
    if (before.sync != start.sync)
      for (LocalReplica& one : replica_.local) pass_sync(one, start.sync);
    replica_.log = log;
    replica_.state.step = start.sync;
    replica_.state.arrived = start.arrived;
  }

  // It stands right before it, and the outer step was taken elsewhere.
  void pass_sync(LocalReplica& one, std::int64_t sync) {
    const int met = times_.fragment_of(sync);
    for (int fragment = 0; fragment < times_.fragments; ++fragment) {
      if (sync != times_.last && (times_.delay > 0 || fragment != met)) continue;
      take_over_outer(one, elements_of(fragment, times_.fragments, replica_.program.size));
    }
    one.arrived = false;
    one.stats = {};
  }

  bool lacks(int rank, std::int64_t number, const LocalStart& start) const {
    const LocalStart::Replica& wanted = start.replicas[static_cast<std::size_t>(number)];
    const LeafRange own = share_of_rank(train_.local_replicas, rank, group_.size()).replicas;
    if (number < own.begin || number >= own.end) return false;
    const HeldReplicas& held = ranks_[static_cast<std::size_t>(rank)];
    return !is_current(held, number, start.sync) ||
           held.steps[static_cast<std::size_t>(number)] != wanted.step;
  }

  // As it was at the newest sync.
  LocalReplica begun_anew(std::int64_t number) const {
    if (!alike_) return replica_at(replica_, replica_.kept->state, number);
    LocalReplica one = room_for(replica_, number, device_);
    one.step = replica_.state.step;
    take_over_outer(one, {0, replica_.program.size});
    return one;
  }
  void take_over_outer(LocalReplica& one, const VectorRange& range) const {
    device_.copy(*replica_.stream, one.parameters.data() + range.begin,
                 replica_.state.parameters.data() + range.begin, range.size());
    replica_.stream->wait();
  }
  LocalReplica& held(std::int64_t number) {
    return *std::ranges::find(replica_.local, number, &LocalReplica::number);
  }
  void hold(LocalReplica one) {
    std::erase_if(replica_.local, [&](const LocalReplica& old) { return old.number == one.number; });
    replica_.local.push_back(std::move(one));
  }

  // A rank drops what others compute now only when they have it.
  void bring_replicas(const LocalStart& start) {
    std::vector<LocalReplica> come, gone;  // in home()'s memory, from and to which messages go
    std::vector<Header> headers(start.replicas.size());
    std::vector<OutMessage> sends;
    std::vector<InMessage> receives;
    for (std::int64_t number = 0; number < train_.local_replicas; ++number) {
      const auto& [from, step, redone] = start.replicas[static_cast<std::size_t>(number)];
      Header& header = headers[static_cast<std::size_t>(number)];
      if (from == group_.rank()) {
        if (redone) hold(begun_anew(number));
        send(number, start, header, gone, sends);
      } else if (lacks(group_.rank(), number, start)) {
        come.push_back(room_for(replica_, number, replica_.home().arithmetic()));
        for (const std::span<std::byte> part : parts_of(header, come.back()))
          receives.push_back({.peer = from, .tag = kTagBroadcast, .bytes = part});
      }
    }
    group_.start(sends, receives)->wait();
    for (LocalReplica& one : come) {
      const Header& header = headers[static_cast<std::size_t>(one.number)];
      one.step = header.step, one.stats = header.stats, one.arrived = header.arrived;
      hold(replica_.host ? copy_of(replica_, one, device_) : std::move(one));
    }
    group_.barrier();
    const LeafRange own = share_of_rank(train_.local_replicas, group_.rank(), group_.size()).replicas;
    std::erase_if(replica_.local,
                  [&](const LocalReplica& one) { return one.number < own.begin || one.number >= own.end; });
    std::ranges::sort(replica_.local, {}, &LocalReplica::number);
  }

  void send(std::int64_t number, const LocalStart& start, Header& header, std::vector<LocalReplica>& gone,
            std::vector<OutMessage>& sends) {
    LocalReplica* one = nullptr;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank() || !lacks(rank, number, start)) continue;
      if (one == nullptr) {
        one = &held(number);
        header = {.step = one->step, .stats = one->stats, .arrived = one->arrived};
        if (replica_.host) one = &gone.emplace_back(copy_of(replica_, *one, replica_.home().arithmetic()));
      }
      for (const std::span<std::byte> part : parts_of(header, *one))
        sends.push_back({.peer = rank, .tag = kTagBroadcast, .bytes = part});
    }
  }

  Replica& replica_;
  const TrainConfig& train_;
  Arithmetic& device_;
  ProcessGroup& group_;
  const SyncTimes times_;
  const bool alike_;  // at a sync all replicas are the outer state
  std::vector<HeldReplicas> ranks_;
};

}  // namespace

SyncTimes sync_times(const TrainConfig& train, std::int64_t last) {
  return {.every = train.steps_between_syncs(),
          .fragments = train.sync_fragments,
          .delay = train.sync_delay,
          .last = last};
}

std::vector<float*> kept_vectors(const TrainConfig& train, const LocalReplica& one) {
  std::vector<float*> vectors;
  if (train.replicas_stay_apart()) vectors.push_back(one.parameters.data());
  for (const Buffer& slot : one.slots) vectors.push_back(slot.data());
  return vectors;
}

void restore_replicas(Replica& replica, const TrainState& state, const ProcessGroup& group) {
  replica.local.clear();
  replica.state.arrived = false;
  const LeafRange own =
      share_of_rank(replica.config.train.local_replicas, group.rank(), group.size()).replicas;
  for (std::int64_t number = own.begin; number < own.end; ++number)
    replica.local.push_back(replica_at(replica, state, number));
}

std::optional<LocalStart> hand_over_replicas(Replica& replica, ProcessGroup& group, std::int64_t last) {
  return HandOver(replica, group, last).run();
}

}  // namespace dtrun::worker
