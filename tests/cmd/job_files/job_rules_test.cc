// The state of a Job after the end of one of its pods: the manifest that `dtrun kubernetes` prints, under the
// rules of Kubernetes' Job controller.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cmd/job_files/job_controller.h"
#include "tests/support/process.h"

namespace dtrun::job_rules_test {

using namespace dtrun::test;

namespace {

const std::vector<std::string> kDisrupted{"DisruptionTarget"};

std::string manifest(const std::string& nodes) {
  const Ended printed = run({kDtrun, "kubernetes", "--image", "r/dtrun:1", "--nnodes", nodes,
                             DTRUN_SOURCE_DIR "/configs/fashion_mnist_convnet.json"});
  REQUIRE_MESSAGE(printed.exit_code == 0, printed.err);
  return printed.out;
}

// The seconds until each of these pods, which end one after the other, has its successor.
std::vector<int> waits(JobController job, const std::vector<EndedPod>& pods) {
  std::vector<int> waits;
  for (const EndedPod& pod : pods) {
    const PodDecision decision = job.ends(pod);
    CHECK(decision.failed.empty());
    waits.push_back(decision.wait_s);
  }
  return waits;
}

using Waits = std::vector<int>;

}  // namespace

TEST_CASE("what would come again ends the job at once") {
  const std::string job = manifest("3");
  // A worker's own end, and dtrun's: command line, divergence, input, bug, GPU, output, disk, key, config.
  for (const int code : {1, 2, 64, 65, 66, 70, 71, 73, 74, 77, 78, 134, 139})
    CHECK_MESSAGE(JobController(job).ends({.exit_code = code}).failed == "PodFailurePolicy", code);
}

TEST_CASE("a lost pod is replaced, and counts") {
  const std::string job = manifest("2:4");
  for (const int code : {
           69,   // too few nodes
           75,   // told by a scheduler to stop
           137,  // the kernel, for want of memory; kubectl delete --now while a step takes longer
           143,  // kubectl delete
           255,  // its node was started anew
       }) {
    const PodDecision decision = JobController(job).ends({.index = 2, .exit_code = code});
    CHECK_MESSAGE(decision.failed.empty(), code);
    CHECK_MESSAGE(decision.counts, code);
    CHECK_MESSAGE(decision.wait_s == 10, code);
  }
}

TEST_CASE(
    "a drain, an eviction and a preemption do not count, whatever the exit code, and however many come") {
  JobController job(manifest("2"));
  for (const int code : {143, 137, 69, 66, 255}) {
    const PodDecision decision = job.ends({.exit_code = code, .conditions = kDisrupted});
    CHECK_MESSAGE(decision.failed.empty(), code);
    CHECK_MESSAGE(!decision.counts, code);
  }
  for (int i = 0; i < 30; ++i) CHECK(job.ends({.exit_code = 143, .conditions = kDisrupted}).failed.empty());
}

TEST_CASE("an index whose pod is lost again and again ends the job: six times are too few, seven are not") {
  JobController job(manifest("2"));
  for (int i = 0; i < 6; ++i) CHECK(job.ends({.exit_code = 137}).failed.empty());
  CHECK(job.ends({.exit_code = 137}).failed == "MaxFailedIndexesExceeded");
}

TEST_CASE("the pods of a large job may be lost one by one, and each is replaced as soon as the first") {
  JobController job(manifest("22"));
  for (int index = 0; index < 22; ++index) {
    const PodDecision decision = job.ends({.index = index, .exit_code = 143});
    CHECK(decision.failed.empty());
    CHECK(decision.wait_s == 10);
  }
}

TEST_CASE("the wait doubles with each loss of one index alone, up to ten minutes") {
  const JobController job(manifest("3"));
  CHECK(waits(job, {{.index = 1, .exit_code = 143},
                    {.index = 2, .exit_code = 143},
                    {.index = 1, .exit_code = 143},
                    {.index = 0, .exit_code = 143}}) == Waits{10, 10, 20, 10});
  CHECK(waits(job, std::vector<EndedPod>(8, {.exit_code = 143, .conditions = kDisrupted})) ==
        Waits{10, 20, 40, 80, 160, 320, 600, 600});
}

// As it was seen on a cluster of Kubernetes 1.36: the model can tell one manifest from another.
TEST_CASE(
    "with one limit for all indexes each loss doubles the wait for the next, and the 21st ends the job") {
  const std::string other = R"(
  backoffLimit: 20
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}  # evicted
    - {action: Count, onExitCodes: {containerName: dtrun, operator: In, values: [69, 75, 143]}}
    - {action: FailJob, onExitCodes: {containerName: dtrun, operator: NotIn, values: [69, 75, 143]}}
)";
  JobController job(other);
  CHECK(waits(job, {{.index = 1, .exit_code = 143},
                    {.index = 0, .exit_code = 143},
                    {.index = 2, .exit_code = 143, .conditions = kDisrupted},
                    {.index = 1, .exit_code = 69}}) == Waits{10, 20, 40, 80});
  for (int i = 0; i < 20; ++i) CHECK(job.ends({.index = i, .exit_code = 143}).failed.empty());
  CHECK(job.ends({.index = 21, .exit_code = 143}).failed == "BackoffLimitExceeded");
  for (const int code : {137, 255})
    CHECK(JobController(other).ends({.exit_code = code}).failed == "PodFailurePolicy");
}

}  // namespace dtrun::job_rules_test
