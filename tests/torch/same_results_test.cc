// Unchanged PyTorch scripts give the same results under dtrun as under torchrun. Skipped where PyTorch is
// missing.
#include "tests/torch/torch_jobs.h"

namespace dtrun::same_results_test {

using namespace dtrun::test;

namespace {

struct Both {
  int torchrun_code, dtrun_code;
  std::string torchrun_out, dtrun_out, torchrun_err, dtrun_err;
};

Both run_both(const std::vector<std::string>& options, const std::vector<std::string>& script) {
  Process torchrun(under_torchrun(joined({"--standalone"}, options), script), environment());
  Process dtrun(under_dtrun(joined({"--standalone"}, options), script), environment());
  Both both{torchrun.wait(kLong), dtrun.wait(kLong), "", "", torchrun.err(), dtrun.err()};
  both.torchrun_out = text_of(sorted_lines(torchrun.out()));
  both.dtrun_out = text_of(sorted_lines(dtrun.out()));
  return both;
}

void check_same_success(const std::string& workers, const std::vector<std::string>& script) {
  const Both both = run_both({"--nproc_per_node", workers}, script);
  REQUIRE_MESSAGE(both.torchrun_code == 0, both.torchrun_err);
  CHECK_MESSAGE(both.dtrun_code == 0, both.dtrun_err);
  CHECK(both.dtrun_out == both.torchrun_out);
  CHECK(sorted_lines(both.dtrun_out).size() == std::stoul(workers));
}

}  // namespace

TEST_CASE("DistributedDataParallel with a DistributedSampler ends with torchrun's parameters, bit for bit") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_same_success("2", {"ddp_train.py", "--epochs", "3"});
  check_same_success("3", {"ddp_train.py", "--batch-size", "5"});
}

TEST_SUITE_BEGIN("long");

TEST_CASE("broadcast, all_reduce, all_gather and a sub-group give the same numbers") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_same_success("2", {"collectives.py"});
  check_same_success("4", {"collectives.py"});
}

TEST_CASE("a program without PyTorch finds the same environment and arguments") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_same_success("3", {"plain.py", "--some", "a b", "--"});
}

TEST_CASE("a worker that raises under @record is named as the culprit, with its traceback") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  const Both both = run_both({"--nproc_per_node", "2"}, {"raises.py"});
  CHECK_MESSAGE(both.torchrun_code == 1, both.torchrun_err);
  CHECK_MESSAGE(both.dtrun_code == 1, both.dtrun_err);
  for (const char* part : {"rank 1", "failed first", "exit code 1", "ValueError: sample 4711 has no label",
                           "in load_sample", "followed: rank 0"}) {
    CHECK_MESSAGE(both.dtrun_err.find(part) != std::string::npos, part, "\n", both.dtrun_err);
  }
}

TEST_CASE("a worker's own exit code is dtrun's, where torchrun says 1") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  const Both both = run_both({"--nproc_per_node", "2"}, {"plain.py", "--fail"});
  CHECK(both.torchrun_code == 1);
  CHECK_MESSAGE(both.dtrun_code == 17, both.dtrun_err);
}

TEST_SUITE_END();

}  // namespace dtrun::same_results_test
