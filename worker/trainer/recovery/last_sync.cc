#include "worker/trainer/recovery/last_sync.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "worker/collective/tags.h"
#include "worker/core/local_replicas.h"
#include "worker/optim/optimizer.h"

namespace dtrun::worker {
namespace {

// As last_whole_sync() takes them.
std::vector<std::int64_t> gathered_steps(const Replica& replica, ProcessGroup& group) {
  const TrainConfig& train = replica.config.train;
  const auto replicas = static_cast<std::size_t>(train.local_replicas), width = kKeptSyncs * replicas;
  const std::size_t outer = outer_slot_names(train).size(), slots = optimizer_slot_names(train).size();
  std::vector<std::int64_t> steps(width * static_cast<std::size_t>(group.size()), -1);
  std::int64_t* mine = steps.data() + width * static_cast<std::size_t>(group.rank());
  for (const KeptSync& kept : replica.kept) {
    for (std::size_t number = 0; number < replicas; ++number)
      if (slots == 0 || !kept.state.optimizer[outer + number * slots].values.empty())
        mine[number] = kept.state.step;
    mine += replicas;
  }
  group.all_gather(bytes_of(steps));
  return steps;
}

class WayBack {
 public:
  WayBack(const Replica& replica, ProcessGroup& group, std::span<const std::int64_t> steps,
          const LastSync& sync)
      : replica_(replica), train_(replica.config.train), group_(group), steps_(steps), sync_(sync) {}

  KeptSync run() {
    const auto mine =
        std::ranges::find(replica_.kept, sync_.step, [](const KeptSync& kept) { return kept.state.step; });
    KeptSync now = mine != replica_.kept.end() ? *mine : KeptSync{.state = empty_state(train_), .log = {}};
    TrainState& state = now.state;
    state.step = sync_.step;
    const auto has_nothing = [this](int rank) {
      return std::ranges::none_of(steps_of(rank), [this](std::int64_t step) { return step == sync_.step; });
    };
    bring(std::as_writable_bytes(std::span(&now.log, 1)), sync_.holders[0], has_nothing);
    bring(state.parameters, sync_.holders[0], has_nothing);
    std::size_t slot = 0;
    for (const std::size_t end = outer_slot_names(train_).size(); slot < end; ++slot)
      bring(state.optimizer[slot].values, sync_.holders[0], has_nothing);
    for (int number = 0; number < train_.local_replicas; ++number)
      for (std::size_t of = 0; of < optimizer_slot_names(train_).size(); ++of, ++slot)
        bring(state.optimizer[slot].values, sync_.holders[static_cast<std::size_t>(number)],
              [&](int rank) { return computes(rank, number) && !holds(rank, number); });
    group_.start(sends_, receives_)->wait();
    return now;
  }

 private:
  std::span<const std::int64_t> steps_of(int rank) const {
    const std::size_t width = kKeptSyncs * static_cast<std::size_t>(train_.local_replicas);
    return steps_.subspan(width * static_cast<std::size_t>(rank), width);
  }
  bool holds(int rank, int number) const {
    for (auto at = static_cast<std::size_t>(number); at < steps_of(rank).size();
         at += static_cast<std::size_t>(train_.local_replicas))
      if (steps_of(rank)[at] == sync_.step) return true;
    return false;
  }
  bool computes(int rank, int number) const {
    const LeafRange own = share_of_rank(train_.local_replicas, rank, group_.size()).replicas;
    return own.begin <= number && number < own.end;
  }
  void bring(std::span<std::byte> bytes, int from, const std::function<bool(int rank)>& lacks) {
    for (int rank = 0; rank < group_.size() && group_.rank() == from; ++rank)
      if (lacks(rank)) sends_.push_back({.peer = rank, .tag = kTagBroadcast, .bytes = bytes});
    if (lacks(group_.rank())) receives_.push_back({.peer = from, .tag = kTagBroadcast, .bytes = bytes});
  }
  void bring(std::vector<float>& values, int from, const std::function<bool(int rank)>& lacks) {
    if (lacks(group_.rank())) values.resize(replica_.program.size);
    bring(bytes_of(values), from, lacks);
  }

  const Replica& replica_;
  const TrainConfig& train_;
  ProcessGroup& group_;
  const std::span<const std::int64_t> steps_;
  const LastSync& sync_;
  std::vector<OutMessage> sends_;
  std::vector<InMessage> receives_;
};

}  // namespace

std::optional<LastSync> last_whole_sync(std::span<const std::int64_t> steps, int replicas) {
  std::set<std::int64_t, std::greater<>> syncs(steps.begin(), steps.end());
  syncs.erase(-1);
  const auto width = static_cast<std::size_t>(replicas);
  for (const std::int64_t step : syncs) {
    LastSync sync{.step = step, .holders = std::vector<int>(width, -1)};
    for (std::size_t at = steps.size(); at-- > 0;)
      if (steps[at] == step) sync.holders[at % width] = static_cast<int>(at / (width * kKeptSyncs));
    if (std::ranges::find(sync.holders, -1) == sync.holders.end()) return sync;
  }
  return std::nullopt;
}

std::optional<ResumePoint> go_back_to_sync(Replica& replica, const RankInGeneration& place,
                                           ProcessGroup& group, const Notice& notice) {
  const std::vector<std::int64_t> steps = gathered_steps(replica, group);
  const std::optional<LastSync> sync = last_whole_sync(steps, replica.config.train.local_replicas);
  if (!sync || is_on_disk_after(sync->step, replica.config, place, group, notice)) return std::nullopt;
  KeptSync now = WayBack(replica, group, steps, *sync).run();
  replica.log = now.log;
  ResumePoint point{
      .from = ResumePoint::kReplica, .source_rank = sync->holders[0], .config_json = {}, .state = now.state};
  replica.kept.clear();
  replica.kept.push_back(std::move(now));
  return point;
}

}  // namespace dtrun::worker
