// Once it trains, nothing as large as the parameters is allocated: not by a step, an evaluation or a save.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/worker/trainer/jobs.h"

namespace {

std::atomic<std::size_t> g_limit{SIZE_MAX};  // bytes from which on allocations are counted
std::atomic<int> g_large{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (bytes >= g_limit) ++g_large;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return operator new[](bytes); }
void* operator new(std::size_t bytes, std::align_val_t at) {
  return counted(bytes, static_cast<std::size_t>(at));
}
void* operator new[](std::size_t bytes, std::align_val_t at) {
  return counted(bytes, static_cast<std::size_t>(at));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace dtrun::worker::allocation_test {
namespace {

// Counts from the step after the first, in which buffers find their number, to the last.
class CountingLink final : public AgentLink {
 public:
  explicit CountingLink(std::size_t limit) : limit_(limit) {}
  bool stop_requested() const override { return false; }
  void report(const Progress& progress) override {
    const bool counts = progress.step >= 1 && progress.phase != Progress::Phase::kSaving;
    g_limit = counts ? limit_ : SIZE_MAX;
    if (counts) seen_.push_back(progress.phase);
  }
  void completed(const Completion&) override { g_limit = SIZE_MAX; }
  std::vector<Progress::Phase> seen_;

 private:
  const std::size_t limit_;
};

TEST_CASE("training allocates nothing as large as the parameters, and neither does a save") {
  const Job job;
  JobConfig config = job.config("run");
  config.train.optim = OptimizerType::kAdamW;
  config.train.save_steps = 1;
  const auto group = make_single_process_group();
  CountingLink link(21840 * sizeof(float));
  CHECK(run_rank(config, *group, 1, link) == Outcome::kCompleted);
  CHECK(g_large == 0);
  CHECK(std::ranges::count(link.seen_, Progress::Phase::kTraining) > 0);
  CHECK(std::ranges::count(link.seen_, Progress::Phase::kEvaluating) > 0);
  std::istringstream lines(job.metrics("run"));
  int saves = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!contains(line, R"("event":"save")")) continue;
    ++saves;
    CHECK(contains(line, R"("stall_milliseconds":)"));
  }
  CHECK(saves == 19);  // after each of 20 steps but the last, whose checkpoint stops nothing
  delete[] new float[21840];
  g_limit = 1;
  delete[] new float[21840];  // the count counts
  g_limit = SIZE_MAX;
  CHECK(g_large >= 1);
}

}  // namespace
}  // namespace dtrun::worker::allocation_test
