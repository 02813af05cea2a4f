#include "worker/trainer/sync_check.h"

#include <algorithm>
#include <array>
#include <string>

#include "proto/base/log.h"
#include "worker/base/error.h"

namespace dtrun::worker {

void verify_sync(const Program& program, std::vector<std::uint64_t> hashes, std::int64_t step,
                 ProcessGroup& group) {
  const std::size_t tensors = hashes.size();
  const auto world = static_cast<std::size_t>(group.size());
  std::vector<std::uint64_t> all(world * tensors);
  std::ranges::copy(hashes, all.begin() + static_cast<std::ptrdiff_t>(group.rank() * tensors));
  group.all_gather(bytes_of(all));
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    const auto hash = [&](std::size_t rank) { return all[rank * tensors + tensor]; };
    std::size_t usual = 0, most = 0;  // a rank with the most frequent hash
    for (std::size_t rank = 0; rank < world; ++rank) {
      std::size_t same = 0;
      for (std::size_t other = 0; other < world; ++other) same += hash(other) == hash(rank);
      if (same > most) usual = rank, most = same;
    }
    if (most == world) continue;
    std::string others;
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (hash(rank) != hash(usual)) others += (others.empty() ? "" : ", ") + std::to_string(rank);
    }
    throw WorkerError(
        kExitDataError,
        "after step " + std::to_string(step) +
            " the parameters are not the same on every rank: " + program.parameters[tensor].name +
            " of rank " + others + " differs from rank " + std::to_string(usual) +
            "'s. A memory or processor may be broken; go on from a checkpoint of a step at which "
            "train.verify_sync_steps found no difference");
  }
}

void compare_devices(const std::string& fingerprint, bool may_differ, ProcessGroup& group) {
  using FingerprintText = std::array<char, 256>;
  const auto rank = static_cast<std::size_t>(group.rank());
  std::vector<FingerprintText> all(static_cast<std::size_t>(group.size()));
  fingerprint.copy(all[rank].data(), all[rank].size() - 1);
  group.all_gather(bytes_of(all));
  const auto other = std::ranges::find_if(all, [&](const FingerprintText& one) { return one != all[0]; });
  if (other == all.end()) return;
  const std::string difference = "rank " + std::to_string(other - all.begin()) + " computes on " +
                                 other->data() + ", rank 0 on " + all[0].data() +
                                 ": the result has not the bits that either would give alone";
  if (!may_differ)
    throw WorkerError(kExitConfig, difference + "; leave one of them out, or set train.allow_mixed_devices");
  if (rank == 0) log_warn(difference);
}

}  // namespace dtrun::worker
