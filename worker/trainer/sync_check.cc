#include "worker/trainer/sync_check.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "proto/base/log.h"
#include "proto/core/text.h"
#include "worker/base/error.h"
#include "worker/trainer/recovery/save_alone.h"

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

namespace {

// Of a rank, as it goes over the wire.
struct DataRecord {
  std::array<char, 64> host{};
  std::array<char, 32> contents{};
  std::int64_t train = 0, test = 0;
  std::int32_t channels = 0, height = 0, width = 0, classes = 0, targets = 0;
  std::int32_t local_rank = 0;
  bool has_values = false;

  bool same_form(const DataRecord& other) const {
    const auto form = [](const DataRecord& of) {
      return std::tuple(of.train, of.test, of.channels, of.height, of.width, of.classes, of.targets);
    };
    return form(*this) == form(other);
  }
  std::string form() const {
    return with_thousands(train) + " training and " + with_thousands(test) + " test samples of " +
           shape_text({.channels = channels, .height = height, .width = width}) + " in " +
           with_thousands(classes) + " classes";
  }
};

DataRecord record_of(const Replica& replica, const RankInGeneration& place) {
  const SampleSpec spec = replica.data.train->spec();
  const DataIdentity& data = replica.data.identity;
  DataRecord record{.train = data.train,
                    .test = data.test,
                    .channels = spec.shape.channels,
                    .height = spec.shape.height,
                    .width = spec.shape.width,
                    .classes = spec.classes,
                    .targets = spec.targets,
                    .local_rank = place.local_rank,
                    .has_values = replica.state.has_values || !replica.kept.empty()};
  gethostname(record.host.data(), record.host.size() - 1);
  data.contents.copy(record.contents.data(), record.contents.size() - 1);
  return record;
}

}  // namespace

void compare_data(const Replica& replica, const RankInGeneration& place, ProcessGroup& group) {
  const auto own = static_cast<std::size_t>(group.rank());
  std::vector<DataRecord> all(static_cast<std::size_t>(group.size()));
  all[own] = record_of(replica, place);
  group.all_gather(bytes_of(all));
  const DataRecord& first = all[0];
  std::string others;
  int node = -1, told = -1;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const DataRecord& one = all[rank];
    if (one.local_rank == 0) ++node;
    if ((one.contents == first.contents && one.same_form(first)) || node == told) continue;
    told = node;
    others += "; node " + std::to_string(node) + " (" + one.host.data() + ", rank " + std::to_string(rank) +
              ") has " + (one.same_form(first) ? "as many with other contents" : one.form());
  }
  if (others.empty()) return;
  if (std::ranges::find(all, true, &DataRecord::has_values) - all.begin() == group.rank())
    save_alone(replica);
  group.barrier();
  throw WorkerError(kExitNoInput, "/data/path: " + replica.config.data.path +
                                      " is not the same data on all nodes: node 0 (" + first.host.data() +
                                      ", rank 0) has " + first.form() + others +
                                      ". Bring the same files to all nodes, or leave one out");
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
