// A script's environment and arguments are the same under torchrun and under dtrun, except for necessary
// differences. Skipped where PyTorch is missing.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/folder.h"
#include "tests/support/ports.h"
#include "tests/torch/torch_jobs.h"

namespace dtrun::environment_test {

using namespace dtrun::test;

namespace {

using Variables = std::map<std::string, std::string>;

nlohmann::json read(const std::filesystem::path& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in, nullptr, false);
}

// The variables that are not the same, and why they cannot be.
const std::set<std::string> kDiffer = {
    "MASTER_ADDR",
    "MASTER_PORT",                      // torchrun 1.13 gives a host name, and a port that it probed
    "TORCHELASTIC_ERROR_FILE",          // a path of the launcher's own
    "NCCL_ASYNC_ERROR_HANDLING",        // its name until PyTorch 2.1 …
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",  // … and since 2.2
    "TORCHELASTIC_USE_AGENT_STORE",     // True in later 2.x: their agent has a TCPStore, ours has none
    "TORCHELASTIC_SIGNALS_TO_HANDLE",   // how later 2.x tell themselves
    "_",                                // the shell's
};

Variables compared(const nlohmann::json& dump) {
  Variables variables;
  for (const auto& [name, value] : dump["environ"].items()) {
    if (!kDiffer.count(name) && !name.starts_with("DTRUN_")) variables[name] = value;
  }
  return variables;
}

void check_same(const std::vector<std::string>& options, const std::vector<std::string>& arguments,
                int workers) {
  Folder folder;
  const auto script = [&](const char* launcher) {
    std::filesystem::create_directories(folder.path() / launcher);
    return joined({"dump.py", (folder.path() / launcher).string()}, arguments);
  };
  const std::vector<std::string> common =
      joined({"--nproc_per_node", std::to_string(workers), "--rdzv_backend", "c10d", "--rdzv_id",
              "experiment", "--rdzv_endpoint"},
             {"localhost:" + std::to_string(free_port())});
  auto variables = environment();
  variables.push_back("CUDA_VISIBLE_DEVICES=0,1,2");
  Process torchrun(under_torchrun(joined(common, options), script("torchrun")), variables);
  REQUIRE_MESSAGE(torchrun.wait(kLong) == 0, torchrun.err());
  Process dtrun(under_dtrun(joined(common, options), script("dtrun")), variables);
  REQUIRE_MESSAGE(dtrun.wait(kLong) == 0, dtrun.err());
  for (int rank = 0; rank < workers; ++rank) {
    const std::string file = std::to_string(rank) + ".json";
    const auto theirs = read(folder.path() / "torchrun" / file), ours = read(folder.path() / "dtrun" / file);
    REQUIRE(theirs.is_object());
    REQUIRE(ours.is_object());
    CHECK(compared(ours) == compared(theirs));
    for (const char* what : {"arguments", "executable", "options", "directory", "path"}) {
      CAPTURE(what);
      CHECK(ours[what] == theirs[what]);
    }
    CHECK(ours["environ"]["TORCHELASTIC_USE_AGENT_STORE"] == "False");
    for (const char* name :
         {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}) {
      CHECK_MESSAGE(ours["environ"].contains(name), name);
    }
  }
}

}  // namespace

TEST_CASE("a script finds torchrun's environment and its arguments, ${local_rank} and $$ replaced") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_same({},
             {"--gpu=${local_rank}", "a b", "", "--", "${local_rank}${local_rank}", "$local_rank$local_ranks",
              "$$", "$$$", "$${local_rank}", "$$$local_rank", "${HOME}$HOME", "${local_rank",
              "${local_rank }", "$5 $(x) y$", "$local_rank\u00df${LOCAL_RANK}"},
             2);
}

TEST_CASE("the same with a role and restarts") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  check_same({"--role", "reader", "--max_restarts", "3"}, {}, 1);
}

}  // namespace dtrun::environment_test
