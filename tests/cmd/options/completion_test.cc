// What a shell completes once it has read dtrun --print_completion: bash is asked for candidates as readline
// would ask, zsh only reads its script.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cmd/options/option_table.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

using namespace dtrun;
using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

const std::string kDtrun = DTRUN_BIN_DIR "/dtrun";

// $1: the folder to be in; then the words behind "dtrun" as readline cuts them. "default" stands for a
// request to do what bash does for any program.
constexpr char kAsk[] = R"(
source <("$0" --print_completion bash) || exit 9
dtrun() { "$dtrun" "$@"; }
dtrun=$0
compopt() { [[ $* != *default* ]] || echo default; [[ $* != *nospace* ]] || echo nospace; }
cd "$1" && shift
COMP_WORDS=(dtrun "$@") COMP_CWORD=$#
_dtrun
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
)";

struct Shell {
  Folder folder;

  Words complete(const Words& words) {
    Words command{"bash", "--norc", "-c", kAsk, kDtrun, folder.path().string()};
    command.insert(command.end(), words.begin(), words.end());
    Process bash(command);
    CHECK(bash.wait() == 0);
    CHECK(bash.err() == "");
    Words found;
    std::istringstream lines(bash.out());
    for (std::string line; std::getline(lines, line);) found.push_back(line);
    return found;
  }
};

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE_FIXTURE(Shell, "every option is offered in one spelling, and in the other once that is begun") {
  const Words all = complete({"-"});
  for (const cmd::OptionText& option : cmd::option_table()) {
    CHECK_MESSAGE(contains(all, "--" + std::string(option.name)), option.name);
  }
  CHECK(contains(all, "--help"));
  CHECK(contains(all, "-m"));
  CHECK_FALSE(contains(all, "--nproc-per-node"));
  CHECK(complete({"--nproc"}) == Words{"--nproc_per_node"});
  CHECK(complete({"--nproc-"}) == Words{"--nproc-per-node"});
  CHECK(complete({"--nnodes", "2", "--rdzv_b"}) == Words{"--rdzv_backend"});
  CHECK(complete({"--zzz"}).empty());
}

TEST_CASE_FIXTURE(Shell, "an option's words are offered as its value, behind a space or =, in any spelling") {
  const Words numbers{"auto", "cpu", "gpu"};
  CHECK(complete({"--nproc_per_node", ""}) == numbers);
  CHECK(complete({"--nproc-per-node", ""}) == numbers);
  CHECK(complete({"--nproc_per_node", "="}) == numbers);
  CHECK(complete({"--nproc_per_node", "=", "a"}) == Words{"auto"});
  CHECK(complete({"--numa_binding", "core"}) == Words{"core-complex"});
  CHECK(complete({"--standalone", "--rdzv-backend", "=", "s"}) == Words{"static"});
  CHECK(complete({"--nnodes", ""}).empty());
}

TEST_CASE_FIXTURE(Shell, "folders alone are offered where an option takes one") {
  std::filesystem::create_directory(folder.path() / "logs");
  std::ofstream(folder.path() / "log.txt").close();
  CHECK(complete({"--log_dir", "lo"}) == Words{"logs"});
}

TEST_CASE_FIXTURE(Shell, "the program is a file or a subcommand, wherever options and their values end") {
  for (const char* name : {"train.py", "status page.json", "store.sh"}) {
    std::ofstream(folder.path() / name).close();
  }
  CHECK(complete({"tr"}) == Words{"train.py"});
  Words begun = complete({"st"});
  std::sort(begun.begin(), begun.end());  // files come in their folder's order; readline sorts
  CHECK(begun == Words{"status", "status page.json", "store", "store.sh"});
  CHECK(complete({"--standalone", "tr"}) == Words{"train.py"});
  CHECK(complete({"--nnodes", "2", "tr"}) == Words{"train.py"});
  CHECK(complete({"--nnodes", "=", "2", "tr"}) == Words{"train.py"});
  CHECK(complete({"--rdzv_endpoint", "host", ":", "29400", "-r", "3", "-m", "tr"}) == Words{"train.py"});
  CHECK(complete({"-r3", "tr"}) == Words{"train.py"});
  CHECK(complete({"--nproc", "2", "tr"}) == Words{"train.py"});  // abbreviated
  CHECK(complete({"--stand", "tr"}) == Words{"train.py"});
  CHECK(complete({"--standalone", "sto"}) == Words{"store.sh"});  // not the subcommand
  CHECK(contains(complete({"--", "prlimi"}), "prlimit"));
}

TEST_CASE_FIXTURE(Shell, "behind a config its entries are offered, with the values that the schema names") {
  CHECK(complete({"job.json", "train.optim", "=", "ad"}) == Words{"adamw"});
  CHECK(complete({"--nproc_per_node", "2", "job.json", "train.max_s"}) ==
        Words{"nospace", "train.max_steps="});
  CHECK(complete({"job.json", "a", "=", "b", "data.ty"}) == Words{"data.type=fashion_mnist"});
  CHECK(contains(complete({"job.json", ""}), "output_dir="));
}

TEST_CASE_FIXTURE(Shell, "a program's own arguments are left to bash") {
  CHECK(complete({"train.py", "--nno"}) == Words{"default"});
  CHECK(complete({"--", "train", "--nproc_per_node", ""}) == Words{"default"});
}

TEST_CASE_FIXTURE(Shell, "a subcommand's options are offered behind it") {
  CHECK(complete({"store", "--p"}) == Words{"--port"});
  CHECK(contains(complete({"status", "--"}), "--watch"));
  CHECK(complete({"status", "--wa", "--rdzv_e"}) == Words{"--rdzv_endpoint"});
}

TEST_CASE("zsh can read its script" * doctest::test_suite("zsh")) {
  if (Process({"sh", "-c", "command -v zsh"}).wait() != 0) return skip("there is no zsh");
  Process check({"sh", "-c", "'" + kDtrun + "' --print_completion zsh | zsh -f -n"});
  CHECK(check.wait() == 0);
  CHECK(check.err() == "");
}

TEST_CASE("a shell without a script is refused, and those with one are named") {
  Process job({kDtrun, "--print-completion", "fish"});
  CHECK(job.wait() == 64);
  CHECK(job.err().find("expected bash, zsh or tcsh") != std::string::npos);
}
