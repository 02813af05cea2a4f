// A hang of unchanged PyTorch scripts: all fall silent together, and the report names the one that the others
// wait for. Skipped where PyTorch is missing; what py-spy adds, where py-spy is missing.
#include <cstdlib>
#include <filesystem>

#include "tests/support/files.h"
#include "tests/support/ports.h"
#include "tests/torch/torch_jobs.h"

namespace dtrun::hang_test {

using namespace dtrun::test;

namespace {

// Beside the Python with PyTorch, or in PATH; empty: there is none.
std::string folder_of_py_spy() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(std::filesystem::path(python_with_torch()).parent_path().string() + ":" +
                             (path != nullptr ? path : ""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::exists(folder + "/py-spy")) return folder;
  return "";
}

std::vector<std::string> with_path(const std::string& path) {
  return joined(environment(), {"PATH=" + path});
}

std::vector<std::string> job(const std::vector<std::string>& options, const std::string& how) {
  // Above the pauses of a start on a busy machine: importing PyTorch is work.
  return under_dtrun(joined({"--stall_timeout", "8"}, options), {"hang.py", how});
}

std::string error_of(const std::vector<std::string>& command, const std::string& path) {
  Process hanging(command, with_path(path));
  CHECK(hanging.wait(kLong) == 137);
  return hanging.err();
}

constexpr char kNothing[] = "/nowhere";

}  // namespace

TEST_CASE("without any tool the kernel tells who waits for nobody") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  for (const std::string ranks : {"2", "3"}) {
    const std::string err = error_of(job({"--nproc_per_node", ranks}, "late"), kNothing);
    CAPTURE(err);
    CHECK(contains(err, "the job failed: ranks 0-" + std::string(ranks == "2" ? "1" : "2") +
                            " hang: no progress for 8 s"));
    CHECK(contains(err, "rank 1: sleep"));
    CHECK(contains(err, "likely cause: rank 1, which does not wait for another rank"));
    CHECK_FALSE(contains(err, "failed first"));
  }
}

TEST_SUITE("py_spy") {
  TEST_CASE("with py-spy each rank has its line, and the one that never comes is named") {
    if (!why_no_torch().empty()) return skip(why_no_torch());
    const std::string path = folder_of_py_spy();
    if (path.empty()) return skip("needs py-spy in PATH, or beside the Python that has PyTorch");
    const std::string err = error_of(job({"--nproc_per_node", "3"}, "late"), path);
    CAPTURE(err);
    CHECK(contains(err, "\n  ranks 0, 2: all_reduce at hang.py:25 · rank 1: sleep at hang.py:12\n"));
    CHECK(contains(err, "likely cause: rank 1, which does not wait for another rank"));
  }

  TEST_CASE("the rank in another collective than the others is named, of two nodes as well") {
    if (!why_no_torch().empty()) return skip(why_no_torch());
    const std::string path = folder_of_py_spy();
    if (path.empty()) return skip("needs py-spy in PATH, or beside the Python that has PyTorch");
    const std::vector<std::string> both{
        "--nnodes",         "2", "--rdzv_endpoint", "127.0.0.1:" + std::to_string(free_port()),
        "--nproc_per_node", "2", "--node_rank"};
    Process second(job(joined(both, {"1"}), "deadlock"), with_path(path));
    const std::string first = error_of(job(joined(both, {"0"}), "deadlock"), path);
    CHECK(second.wait(kLong) == 137);
    for (const std::string& err : {first, second.err()}) {
      CAPTURE(err);
      CHECK(contains(err, "the job failed: ranks 0-3 hang: "));
      CHECK(contains(err, "rank 1: broadcast at hang.py:"));
      CHECK(contains(err, "likely cause: rank 1, which is not where the others are"));
    }
  }
}

}  // namespace dtrun::hang_test
