#include "cmd/check/node_checks.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::node_checks_test {
namespace {

constexpr std::int64_t kMebi = 1 << 20, kOfContainers = 64 * kMebi;

JobSpec workers(int nproc, const std::string& program) {
  JobSpec spec;
  spec.nproc = nproc;
  spec.program = ExternalProgram{{program, "-u", "train.py"}};
  return spec;
}

TEST_CASE("a small /dev/shm is told of where several workers may share memory there") {
  const std::string told = small_shm_notice(workers(2, "/usr/bin/python3"), kOfContainers);
  CHECK(told.starts_with("/dev/shm has 64 MB"));
  CHECK(told.find('\n') == std::string::npos);
  CHECK(small_shm_notice(workers(1, "python3"), kOfContainers).empty());
  CHECK(small_shm_notice(workers(2, "/bin/train"), kOfContainers).empty());
  CHECK(small_shm_notice(workers(2, "python3"), 128 * kMebi).empty());
  CHECK_FALSE(small_shm_notice(workers(2, "python3"), 128 * kMebi - 1).empty());
  CHECK(small_shm_notice(workers(2, "python3"), -1).empty());

  JobSpec one_of_several_tasks = workers(1, "python3.12");
  one_of_several_tasks.local_world_size = 8;
  CHECK_FALSE(small_shm_notice(one_of_several_tasks, kOfContainers).empty());

  JobSpec trainer = workers(2, "");
  trainer.program = BuiltinTrainer{.worker_binary = "w", .config_json = "{}", .output_dir = "out"};
  CHECK(small_shm_notice(trainer, kOfContainers).empty());
  std::get<BuiltinTrainer>(trainer.program).cuda = true;
  CHECK_FALSE(small_shm_notice(trainer, kOfContainers).empty());
}

}  // namespace
}  // namespace dtrun::cmd::node_checks_test
