// How long two workers on this host take to exchange their gradients and add them up: through memory that
// they share, and by messages over loopback. Run by hand and by scripts/bench.
//   exchange_bench [megabytes] [seconds a way]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/support/folder.h"
#include "tests/worker/collective/ranks.h"
#include "worker/collective/gradient_exchange.h"
#include "worker/collective/shared_memory_transport.h"

using namespace dtrun::worker;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBuckets = 32;  // as many as a large model has

// Milliseconds of the median step on this rank, of one leaf a rank. All ranks make as many steps.
template <typename Step>
double median_of(ProcessGroup& group, double seconds, const Step& step) {
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (std::vector<std::int64_t> go_on(2, 1); go_on[0] != 0;) {
    group.barrier();
    const auto begin = Clock::now();
    step();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    go_on[static_cast<std::size_t>(group.rank())] = Clock::now() < end;
    group.all_gather(bytes_of(go_on));  // rank 0 decides
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

double exchange(ProcessGroup& group, std::size_t floats, double seconds, bool share) {
  std::vector<VectorRange> buckets;
  for (std::size_t i = kBuckets; i > 0; --i)
    buckets.push_back({floats * (i - 1) / kBuckets, floats * i / kBuckets});
  const auto arithmetic = make_cpu_arithmetic();
  const auto stream = arithmetic->make_stream();
  std::unique_ptr<SharedMemoryTransport> transport;
  if (share) transport = std::make_unique<SharedMemoryTransport>(group, floats, buckets.size());
  const Buffer partial = share ? transport->memory().allocate(floats) : Buffer(floats), sum(floats);
  std::fill_n(partial.data(), floats, 1.0f);
  const auto tree = make_tree_exchange(group, *arithmetic, buckets, transport.get());
  const float* const partials[] = {partial.data()};
  return median_of(group, seconds, [&] {
    tree->begin(2, sum.data());
    for (int bucket = 0; bucket < kBuckets; ++bucket) tree->send(bucket, partials, *stream);
    tree->finish();
  });
}

void measure(ProcessGroup& group, std::size_t floats, double seconds) {
  const double memory = exchange(group, floats, seconds, true);
  const double messages = exchange(group, floats, seconds, false);
  if (group.rank() != 0) return;
  std::printf("{\"megabytes\": %zu, \"memory_ms\": %.3f, \"messages_ms\": %.3f}\n",
              floats * sizeof(float) / 1000000, memory, messages);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 25;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  if (megabytes <= 0 || seconds <= 0) {
    std::fputs("usage: exchange_bench [megabytes] [seconds a way]\n", stderr);
    return dtrun::kExitUsage;
  }
  const dtrun::test::Folder folder;
  std::vector<pid_t> pids;
  for (const int rank : {0, 1}) {
    pids.push_back(fork_child([&, rank] {
      DirectoryStore store(folder.path());
      const auto group = connect(rank, 2, store, milliseconds(30000));
      measure(*group, static_cast<std::size_t>(megabytes * 1e6 / sizeof(float)), seconds);
      return 0;
    }));
  }
  bool well = true;
  for (const pid_t pid : pids) {
    const auto status = wait_for_exit(pid, milliseconds(600000));
    well = well && status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  }
  return well ? 0 : dtrun::kExitSoftware;
}
