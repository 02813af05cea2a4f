#include "agent/core/gpu_release.h"

#include <doctest/doctest.h>

namespace dtrun::gpu_release_test {

using namespace dtrun::agent;

namespace {

GpuReading with_processes(std::vector<int> first, std::vector<int> second = {}) {
  return {.gpus = {{.pci = "0000:5e:00.0", .processes = std::move(first)},
                   {.pci = "0000:af:00.0", .processes = std::move(second)}}};
}

}  // namespace

TEST_CASE("nobody waits for a GPU that no worker left") {
  GpuRelease release;
  CHECK_FALSE(release.waits());
  CHECK(release.look(with_processes({1}), 0).start);
}

TEST_CASE("a replacement waits until its predecessor is gone from every GPU") {
  GpuRelease release;
  release.ended(11, 1000);
  release.ended(12, 1000);
  CHECK(release.waits());
  CHECK_FALSE(release.look(with_processes({7, 11}, {12}), 1100).start);
  CHECK_FALSE(release.look(with_processes({7}, {12}), 1200).start);
  CHECK(release.waits());
  const auto free = release.look(with_processes({7}, {}), 1300);
  CHECK(free.start);
  CHECK(free.note == "");
  CHECK_FALSE(release.waits());
}

TEST_CASE("who holds on for too long is named, and waited for no longer") {
  GpuRelease release;
  release.ended(11, 1000);
  CHECK_FALSE(release.look(with_processes({}, {11}), 5999).start);
  const auto late = release.look(with_processes({}, {11}), 6000);
  CHECK(late.start);
  CHECK(late.note ==
        "GPU 1 (0000:af:00.0) still has memory of process 11, which ended 5 s ago; the worker that takes its "
        "place "
        "starts anyway");
  CHECK_FALSE(release.waits());
}

TEST_CASE("a driver that does not answer keeps nobody from starting") {
  GpuRelease release;
  release.ended(11, 1000);
  const auto unknown = release.look(std::nullopt, 1100);
  CHECK(unknown.start);
  CHECK(unknown.note == "");
  CHECK_FALSE(release.waits());
}

}  // namespace dtrun::gpu_release_test
