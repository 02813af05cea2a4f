#include "worker/reduction/exchange_plan.h"

#include <algorithm>
#include <utility>

namespace dtrun::worker {
namespace {

VectorRange slice_of(const VectorRange& range, int index, int count) {
  return {range.begin + range.size() * index / count, range.begin + range.size() * (index + 1) / count};
}

// The floats of `piece` for `part` of the vector. REQUIRES: `piece` holds `range` of the vector, which
// contains `part`.
Piece part_of(const Piece& piece, const VectorRange& range, const VectorRange& part) {
  Piece result = piece;
  result.range.begin += part.begin - range.begin;
  result.range.end = result.range.begin + part.size();
  return result;
}

// A bucket's memory in the inbox, allocated slot by slot.
class Inbox {
 public:
  explicit Inbox(std::size_t begin) : end_(begin) {}
  Piece take(std::size_t floats) {
    slots_.push_back({end_, end_ + floats});
    end_ += floats;
    return {.vector = Piece::kInbox, .number = slots_.size() - 1, .range = slots_.back()};
  }
  std::size_t end() const { return end_; }
  const std::vector<VectorRange>& slots() const { return slots_; }

 private:
  std::size_t end_;
  std::vector<VectorRange> slots_;
};

Piece partial(std::size_t block, const VectorRange& range) {
  return {.vector = Piece::kPartial, .number = block, .range = range};
}
Piece total(const VectorRange& range) { return {.vector = Piece::kSum, .number = 0, .range = range}; }

void send(ExchangeRound& round, int peer, const Piece& piece) {
  if (piece.range.size() > 0) round.out.push_back({.peer = peer, .piece = piece});
}
void receive(ExchangeRound& round, int peer, const Piece& piece, const std::optional<Piece>& from) {
  if (piece.range.size() > 0) round.in.push_back({.peer = peer, .piece = piece, .from = from});
}
void add_up(ExchangeRound& round, TreeSum sum, std::vector<Piece> inputs, const Piece& out) {
  if (out.range.size() > 0)
    round.sums.push_back({.sum = std::move(sum), .inputs = std::move(inputs), .out = out});
}

// The exchange of each rank with all others, whatever their hosts.
class OneLevel {
 public:
  OneLevel(std::int64_t leaves, int rank, int world) : rank_(rank), world_(world) {
    std::vector<Block> all;
    for (int each = 0; each < world; ++each) {
      const LeafRange own = leaves_of_rank(leaves, each, world);
      const std::vector<Block> blocks = blocks_of(own.begin, own.end, leaves);
      all.insert(all.end(), blocks.begin(), blocks.end());
      blocks_.push_back(blocks.size());
    }
    sum_ = plan_sum(all, leaves);
  }

  std::size_t own_blocks() const { return blocks_[static_cast<std::size_t>(rank_)]; }

  std::vector<ExchangeRound> rounds(const VectorRange& bucket, bool direct, Inbox& inbox) const {
    const auto part = [&](int of) { return direct ? bucket : slice_of(bucket, of, world_); };
    const VectorRange mine = part(rank_);
    ExchangeRound partials, slices;
    std::vector<Piece> inputs;
    for (int peer = 0; peer < world_; ++peer) {
      for (std::size_t i = 0; i < blocks_[static_cast<std::size_t>(peer)]; ++i) {
        inputs.push_back(peer == rank_ ? partial(i, mine) : inbox.take(mine.size()));
        if (peer != rank_) receive(partials, peer, inputs.back(), partial(i, mine));
      }
      if (peer == rank_) continue;
      for (std::size_t i = 0; i < own_blocks(); ++i) send(partials, peer, partial(i, part(peer)));
      receive(slices, peer, total(part(peer)), total(part(peer)));
      send(slices, peer, total(mine));
    }
    add_up(partials, sum_, std::move(inputs), total(mine));
    std::vector<ExchangeRound> rounds{std::move(partials)};
    if (!direct) rounds.push_back(std::move(slices));
    return rounds;
  }

 private:
  const int rank_, world_;
  std::vector<std::size_t> blocks_;  // [rank]: number of the blocks that it finishes alone
  TreeSum sum_;                      // over the blocks of all ranks
};

// The two levels as seen by rank `here` + `host` * ranks_of_host.
class TwoLevels {
 public:
  TwoLevels(std::int64_t leaves, int rank, int world, int ranks_of_host)
      : leaves_(leaves),
        world_(world),
        locals_(ranks_of_host),
        hosts_(world / ranks_of_host),
        host_(rank / ranks_of_host),
        here_(rank % ranks_of_host) {
    for (int host = 0; host < hosts_; ++host) {
      const LeafRange first = leaves_of_rank(leaves, host * locals_, world);
      const LeafRange last = leaves_of_rank(leaves, host * locals_ + locals_ - 1, world);
      host_blocks_.push_back(blocks_of(first.begin, last.end, leaves));
      all_blocks_.insert(all_blocks_.end(), host_blocks_.back().begin(), host_blocks_.back().end());
    }
  }

  std::vector<ExchangeRound> rounds(const VectorRange& bucket, Inbox& inbox) const {
    const VectorRange mine = slice_of(bucket, here_, locals_);
    ExchangeRound within, across, totals, gather;
    const std::vector<Piece> of_host = add_up_host(bucket, mine, within, inbox);
    add_up_all(mine, of_host, across, inbox);
    for (int host = 0; host < hosts_; ++host) {
      if (host == host_) continue;
      const int peer = host * locals_ + here_;
      const Piece theirs = total(slice_of(mine, host, hosts_));
      send(totals, peer, total(slice_of(mine, host_, hosts_)));
      receive(totals, peer, theirs, theirs);
    }
    for (int local = 0; local < locals_; ++local) {
      if (local == here_) continue;
      const int peer = host_ * locals_ + local;
      const Piece theirs = total(slice_of(bucket, local, locals_));
      send(gather, peer, total(mine));
      receive(gather, peer, theirs, theirs);
    }
    return {std::move(within), std::move(across), std::move(totals), std::move(gather)};
  }

 private:
  std::vector<Block> blocks_of_local(int local) const {
    const LeafRange own = leaves_of_rank(leaves_, host_ * locals_ + local, world_);
    return blocks_of(own.begin, own.end, leaves_);
  }

  // The pieces with this rank's slice of each of its host's blocks.
  std::vector<Piece> add_up_host(const VectorRange& bucket, const VectorRange& mine, ExchangeRound& round,
                                 Inbox& inbox) const {
    std::vector<Block> blocks;  // those of all ranks of the host
    std::vector<Piece> inputs;
    for (int local = 0; local < locals_; ++local) {
      const std::vector<Block> theirs = blocks_of_local(local);
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        const Piece piece = local == here_ ? partial(i, mine) : inbox.take(mine.size());
        if (local != here_) receive(round, host_ * locals_ + local, piece, partial(i, mine));
        blocks.push_back(theirs[i]);
        inputs.push_back(piece);
      }
    }
    const std::size_t own = blocks_of_local(here_).size();
    for (int local = 0; local < locals_; ++local) {
      if (local == here_) continue;
      for (std::size_t i = 0; i < own; ++i)
        send(round, host_ * locals_ + local, partial(i, slice_of(bucket, local, locals_)));
    }
    std::vector<Piece> result;
    std::size_t next = 0;
    for (const Block& block : host_blocks_[host_]) {
      const std::size_t first = next;
      const auto ends_within = [&](const Block& b) {
        return b.begin < block.begin + (std::int64_t{1} << block.level);
      };
      while (next < blocks.size() && ends_within(blocks[next])) ++next;
      if (next == first + 1) {
        result.push_back(inputs[first]);
        continue;
      }
      result.push_back(inbox.take(mine.size()));
      add_up(round, plan_sum_of(block, std::span(blocks).subspan(first, next - first), leaves_),
             {inputs.begin() + static_cast<std::ptrdiff_t>(first),
              inputs.begin() + static_cast<std::ptrdiff_t>(next)},
             result.back());
    }
    return result;
  }

  void add_up_all(const VectorRange& slice, const std::vector<Piece>& of_host, ExchangeRound& round,
                  Inbox& inbox) const {
    const VectorRange mine = slice_of(slice, host_, hosts_);
    std::vector<Piece> inputs;
    for (int host = 0; host < hosts_; ++host) {
      for (std::size_t i = 0; i < host_blocks_[host].size(); ++i) {
        if (host == host_) {
          inputs.push_back(part_of(of_host[i], slice, mine));
          continue;
        }
        inputs.push_back(inbox.take(mine.size()));
        receive(round, host * locals_ + here_, inputs.back(), std::nullopt);
      }
      if (host == host_) continue;
      for (const Piece& piece : of_host)
        send(round, host * locals_ + here_, part_of(piece, slice, slice_of(slice, host, hosts_)));
    }
    add_up(round, plan_sum(all_blocks_, leaves_), std::move(inputs), total(mine));
  }

  const std::int64_t leaves_;
  const int world_, locals_, hosts_, host_, here_;
  std::vector<std::vector<Block>> host_blocks_;  // [host]
  std::vector<Block> all_blocks_;
};

}  // namespace

int ranks_of_each_host(std::span<const std::string> hosts) {
  std::size_t count = 1;
  while (count < hosts.size() && hosts[count] == hosts[0]) ++count;
  if (hosts.empty() || hosts.size() % count != 0) return 0;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != hosts[r / count * count]) return 0;
    if (r % count == 0 &&
        std::ranges::find(hosts.first(r), hosts[r]) != hosts.begin() + static_cast<std::ptrdiff_t>(r))
      return 0;
  }
  return static_cast<int>(count);
}

std::size_t ExchangePlan::groups() const {
  std::size_t end = 0;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
    end = std::max(end, bucket + buckets[bucket].rounds.size());
  return end;
}

std::vector<RoundOfBucket> ExchangePlan::rounds_of(std::size_t group) const {
  std::vector<RoundOfBucket> result;
  for (std::size_t bucket = 0; bucket < std::min(group + 1, buckets.size()); ++bucket) {
    const std::vector<ExchangeRound>& rounds = buckets[bucket].rounds;
    const std::size_t number = group - bucket;
    if (number < rounds.size()) result.push_back({bucket, number, &rounds[number]});
  }
  return result;
}

bool goes_directly(const VectorRange& bucket, int world, std::size_t direct_bytes) {
  return world <= 2 || bucket.size() * sizeof(float) * (world - 1) <= direct_bytes;
}

ExchangePlan plan_exchange(std::int64_t leaves, int rank, int world, int ranks_of_host,
                           std::span<const VectorRange> buckets, std::size_t direct_bytes) {
  const OneLevel one(leaves, rank, world);
  std::optional<TwoLevels> two;
  // With one rank on each host, or one host, there is one level.
  if (ranks_of_host > 1 && ranks_of_host < world) two.emplace(leaves, rank, world, ranks_of_host);
  ExchangePlan plan{.own_blocks = one.own_blocks(), .inbox = 0, .buckets = {}};
  plan.buckets.resize(buckets.size());
  // With two levels a bucket's second round reads the data that its first round received, beside the first
  // round of the next bucket, which therefore needs another area. With one level the data has been read by
  // then.
  const std::size_t areas = two ? 2 : 1;
  for (std::size_t area = 0; area < areas; ++area) {
    const std::size_t begin = plan.inbox;
    for (std::size_t b = area; b < buckets.size(); b += areas) {
      Inbox inbox(begin);
      const bool direct = goes_directly(buckets[b], world, direct_bytes);
      plan.buckets[b].rounds =
          two && !direct ? two->rounds(buckets[b], inbox) : one.rounds(buckets[b], direct, inbox);
      plan.buckets[b].slots = inbox.slots();
      plan.inbox = std::max(plan.inbox, inbox.end());
    }
  }
  return plan;
}

}  // namespace dtrun::worker
