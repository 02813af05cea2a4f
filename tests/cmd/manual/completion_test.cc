// The completions of a shell that has read dtrun completion: bash is asked for candidates as readline would
// ask, fish by its own command for that, and in zsh and tcsh, which have none, keys are typed on a terminal.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "cmd/options/option_table.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace dtrun::completion_test {

using namespace dtrun::test;

namespace {

using Words = std::vector<std::string>;

// $1: the folder to be in; then the words behind "dtrun" as readline cuts them. "default" stands for a
// request to do what bash does for any program.
constexpr char kAsk[] = R"(
source <("$0" completion bash) || exit 9
compopt() { [[ $* != *default* ]] || echo default; [[ $* != *nospace* ]] || echo nospace; }
cd "$1" && shift
COMP_WORDS=("$0" "$@") COMP_CWORD=$#
_dtrun
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
)";

struct Shell {
  Folder folder;

  Words complete(const Words& words, const Words& environment = {}) {
    Words command{"bash", "--norc", "-c", kAsk, kDtrun, folder.path().string()};
    command.insert(command.end(), words.begin(), words.end());
    Process bash(command, environment);
    CHECK(bash.wait() == 0);
    CHECK(bash.err() == "");
    Words found;
    std::istringstream lines(bash.out());
    for (std::string line; std::getline(lines, line);) found.push_back(line);
    return found;
  }
};

bool is_installed(const std::string& shell) {
  return Process({"sh", "-c", "command -v " + shell}).wait() == 0;
}

// The words that fish offers behind `line`, without the descriptions.
Words fish_offers(const std::string& line, const std::filesystem::path& folder) {
  Process fish({"sh", "-c",
                "cd \"$1\" && HOME=$1 XDG_STATE_HOME= PATH=${0%/*}:$PATH fish -N -c 'dtrun completion fish | "
                "source; complete -C $argv[1]' -- \"$2\"",
                kDtrun, folder.string(), line});
  CHECK(fish.wait() == 0);
  CHECK(fish.err() == "");
  Words found;
  std::istringstream lines(fish.out());
  for (std::string text; std::getline(lines, text);) found.push_back(text.substr(0, text.find('\t')));
  return found;
}

// A shell on a terminal whose dtrun is a script that writes its arguments, one a line, to a file, unless it
// is asked for candidates.
class InteractiveShell {
 public:
  // `set_up`: the line that loads the completion from the file in $SCRIPT.
  InteractiveShell(const std::string& shell, const std::string& set_up) {
    Process printed({kDtrun, "completion", shell});
    REQUIRE(printed.wait() == 0);
    std::ofstream(path("script")) << printed.out();
    std::filesystem::create_directory(path("bin"));
    std::ofstream(path("bin/dtrun")) << "#!/bin/sh\n[ \"$1\" != __complete ] || exec '" << kDtrun
                                     << "' \"$@\"\nprintf '%s\\n' \"$@\" > '" << path("part") << "'\nmv '"
                                     << path("part") << "' '" << path("arguments") << "'\n";
    std::filesystem::permissions(path("bin/dtrun"), std::filesystem::perms::owner_all);
    const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ == 0) start(shell);
    fcntl(fd_, F_SETFL, O_NONBLOCK);
    type(set_up + "\necho re'ad'y\n");
    REQUIRE_MESSAGE(eventually([&] { return (read_all(), seen_.find("\nready") != std::string::npos); }),
                    seen_);
  }
  ~InteractiveShell() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(fd_);
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  // The arguments that dtrun gets once these keys are typed behind its name; words with a space between them.
  std::string typed(const std::string& keys) {
    std::filesystem::remove(path("arguments"));
    type("dtrun " + keys + "\n");
    const bool ran = eventually([&] { return (read_all(), std::filesystem::exists(path("arguments"))); });
    CHECK_MESSAGE(ran, seen_);
    std::string words = read_if_there(path("arguments"));
    std::replace(words.begin(), words.end(), '\n', ' ');
    return words;
  }

 private:
  [[noreturn]] void start(const std::string& shell) const {
    setenv("HOME", folder_.path().c_str(), 1);
    setenv("PATH", (path("bin") + ":" + getenv("PATH")).c_str(), 1);
    setenv("SCRIPT", path("script").c_str(), 1);
    setenv("TERM", "vt100", 1);
    unsetenv("XDG_STATE_HOME");
    if (chdir(folder_.path().c_str()) == 0) execlp(shell.c_str(), shell.c_str(), "-f", "-i", nullptr);
    _exit(127);
  }
  void type(const std::string& keys) { CHECK(write(fd_, keys.data(), keys.size()) == ssize_t(keys.size())); }
  void read_all() {
    char chunk[4096];
    for (ssize_t n; (n = read(fd_, chunk, sizeof chunk)) > 0;)
      seen_.append(chunk, static_cast<std::size_t>(n));
  }

  Folder folder_;
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
};

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE_FIXTURE(Shell, "every option is offered in one spelling, and in the other once that is begun") {
  const Words all = complete({"-"});
  for (const cmd::OptionEntry& option : cmd::kOptions) {
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
  CHECK(complete({"trai"}) == Words{"train.py"});
  Words begun = complete({"st"});
  std::sort(begun.begin(), begun.end());  // files come in their folder's order; readline sorts
  CHECK(begun == Words{"status", "status page.json", "stop", "store", "store.sh"});
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
  CHECK(complete({"job.json", "a", "=", "b", "data.type=fas"}) == Words{"data.type=fashion_mnist"});
  CHECK(contains(complete({"job.json", ""}), "output_dir="));
}

TEST_CASE_FIXTURE(Shell, "files are offered where an option or a subcommand takes one") {
  std::ofstream(folder.path() / "my.key").close();
  std::ofstream(folder.path() / "job.json").close();
  CHECK(complete({"--key_file", "my"}) == Words{"my.key"});
  CHECK(complete({"--key_file", "=", "my"}) == Words{"my.key"});
  CHECK(complete({"profile", "jo"}) == Words{"job.json"});
}

TEST_CASE_FIXTURE(Shell, "a program's own arguments are left to bash") {
  CHECK(complete({"train.py", "--nno"}) == Words{"default"});
  CHECK(complete({"--", "train", "--nproc_per_node", ""}) == Words{"default"});
}

TEST_CASE_FIXTURE(Shell, "a subcommand's options, their values and its argument are offered behind it") {
  CHECK(complete({"store", "--po"}) == Words{"--port"});
  CHECK(contains(complete({"status", "--"}), "--watch"));
  CHECK_FALSE(contains(complete({"status", "--"}), "--nnodes"));
  CHECK(complete({"status", "--wa", "--rdzv_e"}) == Words{"--rdzv_endpoint"});
  CHECK(complete({"status", "--rdzv-e"}) == Words{"--rdzv-endpoint"});
  CHECK(complete({"help", "--format", "ma"}) == Words{"man", "markdown"});
  CHECK(complete({"help", "--format", "=", "t"}) == Words{"text"});
  CHECK(complete({"help", "--format", "man", "st"}) == Words{"store", "status", "stop"});
  CHECK(complete({"help", "con"}) == Words{"config"});
  CHECK(complete({"completion", ""}) == Words{"bash", "zsh", "fish", "tcsh"});
  CHECK(complete({"gpus", ""}).empty());
}

// Two runs that were detached from `home`'s machine.
void add_runs(const std::filesystem::path& home) {
  const std::filesystem::path launches = home / ".local/state/dtrun/launches";
  std::filesystem::create_directories(launches);
  for (const std::string name : {"far", "fast.2"})
    std::ofstream(launches / (name + ".json"))
        << R"({"run_id": ")" << name << R"(", "ssh": ["ssh"], "accept_new_host_keys": false, )"
        << R"("directory": "/", "ended": false, "hosts": [{"host": "a", "node": 0}]})";
  std::ofstream(launches / "other.json.tmp").close();
}

TEST_CASE_FIXTURE(Shell, "runs that were detached are offered to attach, stop and logs") {
  add_runs(folder.path());
  const std::string home = "HOME=" + folder.path().string();
  for (const char* command : {"attach", "stop", "logs"}) {
    CHECK(complete({command, ""}, {home, "XDG_STATE_HOME="}) == Words{"far", "fast.2"});
    CHECK(complete({command, "fas"}, {home, "XDG_STATE_HOME="}) == Words{"fast.2"});
    CHECK(complete({command, ""}, {"HOME=/nowhere", "XDG_STATE_HOME="}).empty());
  }
  CHECK(complete({"stop", "--now", "fa"}, {"XDG_STATE_HOME=" + (folder.path() / ".local/state").string()}) ==
        Words{"far", "fast.2"});
}

TEST_CASE("fish offers options, values, subcommands and overrides, each in its place" *
          doctest::test_suite("fish")) {
  if (!is_installed("fish")) return skip("there is no fish");
  Folder folder;
  std::ofstream(folder.path() / "train.py").close();
  const auto offers = [&](const std::string& line) { return fish_offers(line, folder.path()); };
  CHECK(offers("dtrun --nproc") == Words{"--nproc_per_node"});
  CHECK(offers("dtrun --nproc-") == Words{"--nproc-per-node"});
  CHECK(offers("dtrun --nproc_per_node ") == Words{"auto", "cpu", "gpu"});
  CHECK(offers("dtrun --nproc-per-node ") == Words{"auto", "cpu", "gpu"});
  CHECK(offers("dtrun --standalone --rdzv_backend s") == Words{"static"});
  const Words all = offers("dtrun --");
  for (const cmd::OptionEntry& option : cmd::kOptions) {
    CHECK_MESSAGE(contains(all, "--" + std::string(option.name)), option.name);
  }
  CHECK(offers("dtrun stor") == Words{"store"});
  CHECK(offers("dtrun --standalone sto").empty());
  CHECK(offers("dtrun trai") == Words{"train.py"});
  CHECK(offers("dtrun --nnodes 2 tra") == Words{"train.py"});
  CHECK(offers("dtrun store --po") == Words{"--port"});
  CHECK(offers("dtrun store tra").empty());
  CHECK(offers("dtrun completion f") == Words{"fish"});
  CHECK(offers("dtrun help --format m") == Words{"man", "markdown"});
  CHECK(offers("dtrun --nnodes 2 job.json train.optim=ad") == Words{"train.optim=adamw"});
  CHECK(offers("dtrun train.py --nno").empty());
  add_runs(folder.path());
  CHECK(offers("dtrun attach f") == Words{"far", "fast.2"});
}

TEST_CASE("zsh completes options, values, subcommands and overrides as they are typed" *
          doctest::test_suite("zsh")) {
  if (!is_installed("zsh")) return skip("there is no zsh");
  InteractiveShell zsh("zsh", "autoload -U compinit; compinit -u -D; source $SCRIPT");
  std::ofstream(zsh.path("train.py")).close();
  CHECK(zsh.typed("--max_r\t3 x") == "--max_restarts 3 x ");
  CHECK(zsh.typed("--numa_b\tex\t x") == "--numa_binding exclusive x ");
  CHECK(zsh.typed("-t 3 tra\t a") == "-t 3 train.py a ");
  CHECK(zsh.typed("comp\tfi\t") == "completion fish ");
  CHECK(zsh.typed("store --po\t1") == "store --port 1 ");
  CHECK(zsh.typed("help --for\tmark\tcon\t") == "help --format markdown config ");
  CHECK(zsh.typed("--rdzv-backend=st\tx") == "--rdzv-backend=static x ");
  CHECK(zsh.typed("job.json train.optim=ad\t") == "job.json train.optim=adamw ");
  add_runs(zsh.path(""));
  CHECK(zsh.typed("attach fas\t") == "attach fast.2 ");
}

TEST_CASE("tcsh completes options, values, subcommands and files as they are typed" *
          doctest::test_suite("tcsh")) {
  if (!is_installed("tcsh")) return skip("there is no tcsh");
  InteractiveShell tcsh("tcsh", "source $SCRIPT");
  std::ofstream(tcsh.path("train.py")).close();
  std::filesystem::create_directory(tcsh.path("jobs"));
  std::ofstream(tcsh.path("jobs/first.json")).close();
  CHECK(tcsh.typed("--max_r\t3 x") == "--max_restarts 3 x ");
  CHECK(tcsh.typed("--numa_b\tex\tx") == "--numa_binding exclusive x ");
  CHECK(tcsh.typed("--max-r\t3 tra\t") == "--max-restarts 3 train.py ");
  CHECK(tcsh.typed("store --po\t1") == "store --port 1 ");
  CHECK(tcsh.typed("completion ba\t") == "completion bash ");
  CHECK(tcsh.typed("compl\t fi\t") == "completion fish ");
  CHECK(tcsh.typed("trai\t a") == "train.py a ");
  CHECK(tcsh.typed("jo\tfi\t") == "jobs/first.json ");
  add_runs(tcsh.path(""));
  CHECK(tcsh.typed("logs fas\t") == "logs fast.2 ");
}

TEST_CASE(
    "torchrun's option prints the same script, and a shell without one is refused with those that have one") {
  for (const char* shell : {"bash", "zsh", "fish", "tcsh"}) {
    Process torchruns({kDtrun, "--print-completion", shell}), ours({kDtrun, "completion", shell});
    CHECK(torchruns.wait() == 0);
    CHECK(ours.wait() == 0);
    CHECK(torchruns.out() == ours.out());
    CHECK(ours.out() != "");
  }
  Process job({kDtrun, "--print-completion", "ksh"});
  CHECK(job.wait() == 64);
  CHECK(job.err().find("--print_completion=ksh: expected bash, zsh, fish or tcsh") != std::string::npos);
  Process command({kDtrun, "completion", "ksh"});
  CHECK(command.wait() == 64);
  CHECK(command.err().find("dtrun completion ksh: expected bash, zsh, fish or tcsh") != std::string::npos);
  Process none({kDtrun, "completion"});
  CHECK(none.wait() == 64);
  CHECK(none.err() ==
        "dtrun: dtrun completion needs bash|zsh|fish|tcsh: dtrun completion [options] bash|zsh|fish|tcsh "
        "(dtrun "
        "completion --help)\n");
}

}  // namespace dtrun::completion_test
