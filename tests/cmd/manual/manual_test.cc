// The manual as the real dtrun prints it, and as it is installed.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cmd/options/option_table.h"
#include "proto/core/contract.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"
#include "worker/config/options.h"

namespace dtrun::manual_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

std::string printed(Words arguments) {
  arguments.insert(arguments.begin(), kDtrun);
  Process job(arguments);
  CHECK(job.wait() == 0);
  CHECK(job.err() == "");
  return job.out();
}

std::string refused(Words arguments) {
  arguments.insert(arguments.begin(), kDtrun);
  Process job(arguments);
  const int code = job.wait();
  CHECK(job.out() == "");
  return std::to_string(code) + " " + job.err();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The subcommands' names as the reference has them.
std::vector<std::string> commands() {
  const std::string heading = "### dtrun ";
  std::vector<std::string> names;
  for (const std::string& line : lines_of(printed({"help", "--format", "markdown"}))) {
    if (!line.starts_with(heading)) continue;
    names.push_back(line.substr(heading.size(), line.find(' ', heading.size()) - heading.size()));
  }
  CHECK(std::ranges::count(names, "store") == 1);
  CHECK(std::ranges::count(names, "completion") == 1);
  return names;
}

void check_fits_a_screen(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  CHECK_MESSAGE(lines.size() < 24, text);  // the prompt has the last line
  for (const std::string& line : lines) CHECK_MESSAGE(line.size() <= 80, line);
}

}  // namespace

TEST_CASE("-h fits a screen of 24 lines, and names the commands and the few options that most need") {
  const std::string text = printed({"-h"});
  check_fits_a_screen(text);
  // Options that are needed once are only in --help.
  const std::set<std::string> rare{"agent",  "attach", "completion", "doctor", "export",  "gpus",
                                   "help",   "key",    "kubernetes", "logs",   "prepare", "profile",
                                   "report", "sample", "slurm",      "stop",   "store",   "trace"};
  for (const std::string& name : commands()) {
    CHECK(contains(text, "\n  " + name + " ") == !rare.contains(name));
    CHECK_MESSAGE(contains(text, name), name);  // "dtrun help lists all"
  }
  for (const char* name : {"--nproc_per_node", "--nnodes", "--rdzv_endpoint", "--max_restarts", "--help"})
    CHECK_MESSAGE(contains(text, name), name);
  CHECK_FALSE(contains(text, "--numa_binding"));
  CHECK(printed({"help"}) == text);
}

TEST_CASE("--help names every option with its default, every command, an example and the exit codes") {
  const std::string text = printed({"--help"});
  for (const cmd::OptionEntry& option : cmd::kOptions) {
    CHECK_MESSAGE(contains(text, "--" + std::string(option.name)), option.name);
  }
  for (const std::string& name : commands()) CHECK(contains(text, "\n  " + name + " "));
  for (const char* word :
       {"[2,64-78]", "--nproc_per_node 2 configs/fashion_mnist_convnet.json", "no rendezvous",
        "--nproc_per_node, --nnodes, --max_restarts, --lanes, --recovery and --log_dir"})
    CHECK_MESSAGE(contains(text, word), word);
}

TEST_CASE("each command has a short help on one screen, and a long one that dtrun help prints as well") {
  for (const std::string& name : commands()) {
    CAPTURE(name);
    const std::string brief = printed({name, "-h"}), full = printed({name, "--help"});
    check_fits_a_screen(brief);
    CHECK(contains(brief, "dtrun " + name + " [options]"));
    CHECK(contains(full, "\nOptions:\n"));
    CHECK(printed({"help", name}) == full);
  }
  CHECK(contains(printed({"status", "-h"}), "--rdzv_id ID "));
  CHECK(contains(printed({"help", "store"}), "[29400]"));
}

TEST_CASE("help on what does not exist names the nearest that does") {
  CHECK(refused({"help", "statsu"}) ==
        "64 dtrun: no help on statsu, did you mean status? (dtrun help lists all)\n");
  CHECK(contains(refused({"help", "cofnig"}), "did you mean config?"));
  CHECK(refused({"help", "--format", "pdf"}) ==
        "64 dtrun: --format=pdf: expected text, man, markdown or schema\n");
  CHECK(contains(refused({"help", "--format", "schema"}),
                 "64 dtrun: --format=schema: only a config has one: "));
  CHECK(refused({"help", "status", "store"}) ==
        "64 dtrun: dtrun help takes no further argument \"store\" (dtrun help --help)\n");
}

TEST_CASE("dtrun help config names every key of a config") {
  const std::string text = printed({"help", "config"});
  for (const worker::Option& key : worker::config_options()) {
    CHECK_MESSAGE(contains(text, "\n  " + worker::path_of(key)), worker::path_of(key));
  }
}

TEST_CASE("an option of a command may stand before and behind its argument") {
  const std::string page = printed({"help", "--format", "man", "config"});
  CHECK(contains(page, ".TH \"DTRUN-CONFIG\" 5"));
  CHECK(printed({"help", "config", "--format=man"}) == page);
}

TEST_CASE("docs/cli.md and docs/config.md are what dtrun prints: scripts/docs writes them anew") {
  const std::filesystem::path docs = DTRUN_SOURCE_DIR "/docs";
  CHECK_MESSAGE(read_if_there(docs / "cli.md") == printed({"help", "--format", "markdown"}),
                "run scripts/docs");
  CHECK_MESSAGE(read_if_there(docs / "config.md") == printed({"help", "--format", "markdown", "config"}),
                "run scripts/docs");
}

TEST_CASE("the man pages render without a warning, and have every option, command and key" *
          doctest::test_suite("groff")) {
  if (Process({"sh", "-c", "command -v groff"}).wait() != 0) return skip("there is no groff");
  const auto rendered = [](const std::string& topic) {
    Process groff({"sh", "-c",
                   shell_text({kDtrun}) + " help --format man " + topic +
                       " | groff -ww -man -Tascii -P-cbou -rLL=80n"});
    CHECK(groff.wait() == 0);
    CHECK(groff.err() == "");
    return groff.out();
  };
  const std::string dtrun = rendered(""), config = rendered("config");
  for (const cmd::OptionEntry& option : cmd::kOptions) {
    CHECK_MESSAGE(contains(dtrun, "--" + std::string(option.name)), option.name);
  }
  for (const std::string& name : commands()) CHECK(contains(dtrun, "dtrun " + name + " [options]"));
  CHECK(contains(dtrun, "dtrun - start and supervise distributed training"));
  CHECK(contains(config, "train.lr_scheduler_type"));
}

TEST_CASE("cmake --install brings programs that run, man pages, completions and docs") {
  Folder folder;
  const std::filesystem::path root = folder.path();
  Process install({DTRUN_CMAKE, "--install", DTRUN_BUILD_DIR, "--prefix", root.string()});
  REQUIRE_MESSAGE(install.wait() == 0, install.err());
  Process version({(root / "bin/dtrun").string(), "--version"});
  CHECK(version.wait() == 0);
  CHECK(version.out().find("\ngRPC 1.") != std::string::npos);
  CHECK(version.out().find(", OpenSSL 3.") != std::string::npos);
  const std::string build = version.out().substr(version.out().find(", build ") + 8);
  CHECK(build.size() == 41);
  CHECK(build.find_first_not_of("0123456789abcdef") == 40);
  Process worker({(root / "bin/dtrun-worker").string(), "--version"});
  CHECK(worker.wait() == 0);
  CHECK(worker.out() == "dtrun-worker " + version.out().substr(6, version.out().find('\n') - 6) +
                            ", protocol " + std::to_string(kControlProtocol) + "\n");
  const std::filesystem::path share = root / "share";
  CHECK(read_if_there(share / "man/man1/dtrun.1") == printed({"help", "--format", "man"}));
  CHECK(read_if_there(share / "man/man5/dtrun-config.5") == printed({"help", "--format", "man", "config"}));
  CHECK(read_if_there(share / "bash-completion/completions/dtrun") == printed({"completion", "bash"}));
  CHECK(read_if_there(share / "zsh/site-functions/_dtrun") == printed({"completion", "zsh"}));
  CHECK(read_if_there(share / "fish/vendor_completions.d/dtrun.fish") == printed({"completion", "fish"}));
  CHECK(std::filesystem::exists(share / "doc/dtrun/docs/cli.md"));
  CHECK(read_if_there(share / "dtrun/configs/job.schema.json") ==
        printed({"help", "--format", "schema", "config"}));
}

}  // namespace dtrun::manual_test
