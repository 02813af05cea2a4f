#include "worker/reduction/exchange_rounds.h"

#include <algorithm>
#include <utility>

#include "worker/reduction/exchange_plan.h"

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

// A bucket's memory in the inbox, given out piece by piece.
class Inbox {
 public:
  explicit Inbox(std::size_t begin) : end_(begin) {}
  Piece take(std::size_t floats) {
    const std::size_t begin = end_;
    end_ += floats;
    return {.kind = Piece::kInbox, .block = 0, .range = {begin, end_}};
  }
  std::size_t end() const { return end_; }

 private:
  std::size_t end_;
};

Piece partial(std::size_t block, const VectorRange& range) {
  return {.kind = Piece::kPartial, .block = block, .range = range};
}
Piece total(const VectorRange& range) { return {.kind = Piece::kSum, .block = 0, .range = range}; }

void add(std::vector<Move>& moves, int peer, const Piece& piece) {
  if (piece.range.size() > 0) moves.push_back({.peer = peer, .piece = piece});
}

std::vector<ExchangeRound> flat_rounds(const ExchangePlan& plan, const BucketPlan& bucket, Inbox& inbox) {
  ExchangeRound first;
  std::vector<Piece> inputs(plan.blocks.size());
  for (std::size_t i = 0; i < plan.own_blocks; ++i) inputs[plan.first_own + i] = partial(i, bucket.mine);
  for (const PartialTransfer& each : bucket.partials_in) {
    inputs[each.input] = inbox.take(each.range.size());
    add(first.in, each.peer, inputs[each.input]);
  }
  for (const PartialTransfer& each : bucket.partials_out)
    add(first.out, each.peer, partial(each.block, each.range));
  if (bucket.mine.size() > 0)
    first.sums.push_back({.sum = plan.total, .inputs = std::move(inputs), .out = total(bucket.mine)});
  std::vector<ExchangeRound> rounds{std::move(first)};
  if (bucket.direct) return rounds;
  ExchangeRound second;
  for (const SliceTransfer& each : bucket.slices_in) add(second.in, each.peer, total(each.range));
  for (const SliceTransfer& each : bucket.slices_out) add(second.out, each.peer, total(each.range));
  rounds.push_back(std::move(second));
  return rounds;
}

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
      add(totals.out, peer, total(slice_of(mine, host_, hosts_)));
      add(totals.in, peer, total(slice_of(mine, host, hosts_)));
    }
    for (int local = 0; local < locals_; ++local) {
      if (local == here_) continue;
      const int peer = host_ * locals_ + local;
      add(gather.out, peer, total(mine));
      add(gather.in, peer, total(slice_of(bucket, local, locals_)));
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
        if (local != here_) add(round.in, host_ * locals_ + local, piece);
        blocks.push_back(theirs[i]);
        inputs.push_back(piece);
      }
    }
    const std::size_t own = blocks_of_local(here_).size();
    for (int local = 0; local < locals_; ++local) {
      if (local == here_) continue;
      for (std::size_t i = 0; i < own; ++i)
        add(round.out, host_ * locals_ + local, partial(i, slice_of(bucket, local, locals_)));
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
      if (mine.size() > 0)
        round.sums.push_back(
            {.sum = plan_sum_of(block, std::span(blocks).subspan(first, next - first), leaves_),
             .inputs = {inputs.begin() + static_cast<std::ptrdiff_t>(first),
                        inputs.begin() + static_cast<std::ptrdiff_t>(next)},
             .out = result.back()});
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
        add(round.in, host * locals_ + here_, inputs.back());
      }
      if (host == host_) continue;
      for (const Piece& piece : of_host)
        add(round.out, host * locals_ + here_, part_of(piece, slice, slice_of(slice, host, hosts_)));
    }
    if (mine.size() > 0)
      round.sums.push_back(
          {.sum = plan_sum(all_blocks_, leaves_), .inputs = std::move(inputs), .out = total(mine)});
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

std::size_t ExchangeRounds::groups() const {
  std::size_t end = 0;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
    end = std::max(end, bucket + buckets[bucket].size());
  return end;
}

std::vector<RoundOfBucket> ExchangeRounds::rounds_of(std::size_t group) const {
  std::vector<RoundOfBucket> rounds;
  for (std::size_t bucket = 0; bucket < std::min(group + 1, buckets.size()); ++bucket)
    if (group - bucket < buckets[bucket].size()) rounds.push_back({bucket, &buckets[bucket][group - bucket]});
  return rounds;
}

ExchangeRounds plan_rounds(std::int64_t leaves, int rank, int world, int ranks_of_host,
                           std::span<const VectorRange> buckets, std::size_t direct_bytes) {
  const ExchangePlan flat = plan_exchange(leaves, rank, world, buckets, direct_bytes);
  // With one rank on each host, or one host, there is one level.
  const bool levels = ranks_of_host > 1 && ranks_of_host < world;
  ExchangeRounds rounds{.own_blocks = flat.own_blocks, .inbox = 0, .buckets = {}};
  rounds.buckets.resize(buckets.size());
  // With two levels a bucket's second round reads the data that its first round received, beside the first
  // round of the next bucket, which therefore needs another area. With one level the data has been read by
  // then.
  const std::size_t areas = levels ? 2 : 1;
  for (std::size_t area = 0; area < areas; ++area) {
    const std::size_t begin = rounds.inbox;
    for (std::size_t b = area; b < buckets.size(); b += areas) {
      Inbox inbox(begin);
      rounds.buckets[b] = levels && !flat.buckets[b].direct
                              ? TwoLevels(leaves, rank, world, ranks_of_host).rounds(buckets[b], inbox)
                              : flat_rounds(flat, flat.buckets[b], inbox);
      rounds.inbox = std::max(rounds.inbox, inbox.end());
    }
  }
  return rounds;
}

}  // namespace dtrun::worker
