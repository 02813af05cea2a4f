#include "cmd/hosts/travelling_environment.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::travelling_environment_test {
namespace {

using Entries = std::vector<std::string>;

std::vector<EnvironmentRule> rules(const Entries& options) {
  std::vector<EnvironmentRule> parsed;
  for (const auto& option : options) parsed.push_back(parse_environment_rule(option).value());
  return parsed;
}

Entries travelling(const Entries& own, const Entries& options = {}) {
  return travelling_environment(own, rules(options));
}

std::vector<EnvironmentRule> file(std::string_view text) {
  const auto parsed = parse_environment_file(text, ".deepspeed_env");
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  return parsed.value();
}

std::string file_refusal(std::string_view text) {
  const auto parsed = parse_environment_file(text, "env");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().exit_code() == kExitConfig);
  return parsed.status().message();
}

}  // namespace

TEST_CASE("everything travels, byte for byte, but what belongs to this session or host") {
  const Entries kept = {"PATH=/venv/bin:/usr/bin",
                        "LD_LIBRARY_PATH=/opt/lib",
                        "NCCL_DEBUG=INFO",
                        "JSON={\"a\": \"b'c\"}",
                        "LINES_OF=a\nb\n",
                        "SLURMISH=64(x2)",
                        "EMPTY=",
                        "EQUALS=a=b=c",
                        "BASH_FUNC_ml%%=() {  eval 1\n}",
                        "WANDB_API_KEY=k",
                        "BYTES=\xff\xfe",
                        "DTRUN_LOG_LEVEL=debug",
                        "MY_HOME=x",
                        "USERS=y",
                        "LC_ALL=C.UTF-8",
                        "DTRUN_NNODES=2",
                        "CUDA_LAUNCH_BLOCKING=1",
                        "SSHKEY=x",
                        "OMP_NUM_THREADS=4",
                        "PYTHONPATH=/x"};
  const Entries left = {"HOME=/h",
                        "USER=u",
                        "LOGNAME=u",
                        "SHELL=/bin/sh",
                        "PWD=/p",
                        "OLDPWD=/o",
                        "TERM=xterm",
                        "DISPLAY=:0",
                        "SSH_AUTH_SOCK=/s",
                        "SSH_TTY=/t",
                        "XDG_RUNTIME_DIR",
                        "XDG_RUNTIME_DIR=/r",
                        "DBUS_SESSION_BUS_ADDRESS=x",
                        "TMPDIR=/t",
                        "HOSTNAME=h",
                        "SLURM_NODEID=0",
                        "SLURM_JOB_CPUS_PER_NODE=64(x2)",
                        "CUDA_VISIBLE_DEVICES=0",
                        "MAIL=/m",
                        "SHLVL=2",
                        "_=/usr/bin/env",
                        "WAYLAND_DISPLAY=w",
                        "STY=s",
                        "TMUX=/t",
                        "TMUX_PANE=%1",
                        "INVOCATION_ID=i",
                        "JOURNAL_STREAM=8:1",
                        "PMI_RANK=1",
                        "PMIX_RANK=1",
                        "OMPI_COMM_WORLD_RANK=1",
                        "DTRUN_KEY=secret",
                        "DTRUN_KEY_FILE=/f",
                        "DTRUN_PROCESS_TAG=t",
                        "DTRUN_CONTROL_FD=3",
                        "NOTIFY_SOCKET=/n",
                        "KRB5CCNAME=/k",
                        "RANK=0",
                        "=C:=x",
                        ""};
  auto own = kept;
  own.insert(own.begin() + 3, left.begin(), left.end());
  CHECK(travelling(own) == kept);
}

TEST_CASE("of a name that stands twice the first entry counts, as for getenv") {
  CHECK(travelling({"A=1", "B=2", "A=3"}) == Entries{"A=1", "B=2"});
}

TEST_CASE("rules send, set and keep; the last that matches decides") {
  CHECK(travelling({"HOME=/h", "A=1"}, {"HOME"}) == Entries{"HOME=/h", "A=1"});
  CHECK(travelling({"A=1", "B=2"}, {"A=x=y", "C=new", "HOME=/there"}) ==
        Entries{"A=x=y", "B=2", "C=new", "HOME=/there"});
  CHECK(travelling({"WANDB_KEY=1", "WANDB=2", "A=3"}, {"^WANDB_*"}) == Entries{"WANDB=2", "A=3"});
  CHECK(travelling({"A=1", "B=2"}, {"^*", "B"}) == Entries{"B=2"});
  CHECK(travelling({"A=1", "B=2"}, {"B", "^*"}).empty());
  CHECK(travelling({}, {"A=1", "A=2"}) == Entries{"A=2"});
  CHECK(travelling({}, {"A=1", "^A"}).empty());
  CHECK(travelling({}, {"^A", "A=1"}) == Entries{"A=1"});
  CHECK(travelling({"A=here"}, {"A=1", "A"}) == Entries{"A=here"});
  CHECK(travelling({"AB=1", "ABC=2", "B=3"}, {"^A?"}) == Entries{"ABC=2", "B=3"});
  CHECK(travelling({"A=1"}, {"^a"}) == Entries{"A=1"});
}

TEST_CASE("patterns: stars and question marks anywhere, the whole name") {
  const auto stays = [](const std::string& name, const std::string& pattern) {
    return travelling({name + "=1"}, {"^" + pattern}).empty();
  };
  CHECK(stays("ABCABD", "A*ABD"));
  CHECK(stays("ABC", "A*B*C*"));
  CHECK(stays("ABC", "***"));
  CHECK(stays("ABC", "?*?"));
  CHECK_FALSE(stays("ABC", "A*B"));
  CHECK_FALSE(stays("ABC", "AB"));
  CHECK_FALSE(stays("ABC", "????"));
  CHECK_FALSE(stays("ABC", "A[B]C"));
  CHECK_FALSE(stays(std::string(20'000, 'a'), "*a*a*a*a*a*b"));
}

TEST_CASE("the job's key never travels, and no rule may name it") {
  CHECK(travelling({"DTRUN_KEY=k"}).empty());
  CHECK(travelling_environment({"DTRUN_KEY=k"}, {{EnvironmentRule::kSend, "DTRUN_KEY"},
                                                 {EnvironmentRule::kSet, "DTRUN_KEY", "x"}})
            .empty());
  for (const char* option : {"DTRUN_KEY", "DTRUN_KEY=x"}) {
    CHECK(parse_environment_rule(option).status().message() ==
          "-x: DTRUN_KEY goes to the other hosts by itself");
  }
  CHECK(file_refusal("A=1\nDTRUN_KEY=x") == "env:2: DTRUN_KEY goes to the other hosts by itself");
}

TEST_CASE("an option that makes no sense is refused") {
  for (const char* option : {"", "=V", "A B", "A B=1", "\tA=1", "A\n=1"}) {
    CAPTURE(option);
    const auto rule = parse_environment_rule(option);
    REQUIRE_FALSE(rule.ok());
    CHECK(rule.status().exit_code() == kExitUsage);
    CHECK(rule.status().message() == "-x: expected NAME or NAME=VALUE, with no spaces in the name");
  }
  CHECK(parse_environment_rule("^").status().message() ==
        "-x: expected a pattern of names after '^', like ^WANDB_*");
  CHECK(parse_environment_rule("A=B C\n").value() == EnvironmentRule{EnvironmentRule::kSet, "A", "B C\n"});
}

TEST_CASE("a name that is sent but not set here is told once") {
  CHECK(not_set_here({"A=1"}, rules({"A", "B", "C=1", "D", "D", "^E*", "B"})) == Entries{"B", "D"});
  CHECK(not_set_here({}, rules({"B", "B=1"})).empty());
  CHECK(not_set_here({}, rules({"B", "^B"})).empty());
}

TEST_CASE("a file of variables: values are literal up to the end of the line") {
  using Rule = EnvironmentRule;
  CHECK(file("NCCL_IB_DISABLE=1\n\n# comment\n  # another\nexport NCCL_SOCKET_IFNAME=eth0\n"
             "QUOTED=\"a b\" 'c'\r\nEQUALS=a=b==\nSPACES= x  \nEMPTY=\nHASH=a#b\n\texport  "
             "TAB=1\nHERE\nexportable=2") == std::vector<Rule>{{Rule::kSet, "NCCL_IB_DISABLE", "1"},
                                                               {Rule::kSet, "NCCL_SOCKET_IFNAME", "eth0"},
                                                               {Rule::kSet, "QUOTED", "\"a b\" 'c'"},
                                                               {Rule::kSet, "EQUALS", "a=b=="},
                                                               {Rule::kSet, "SPACES", " x  "},
                                                               {Rule::kSet, "EMPTY", ""},
                                                               {Rule::kSet, "HASH", "a#b"},
                                                               {Rule::kSet, "TAB", "1"},
                                                               {Rule::kSend, "HERE"},
                                                               {Rule::kSet, "exportable", "2"}});
  CHECK(file("").empty());
  CHECK(file("\n\r\n").empty());
}

TEST_CASE("a file's wrong line is named") {
  CHECK(file_refusal("A=1\nB = 2") == "env:2: expected NAME or NAME=VALUE, with no spaces in the name");
  CHECK(file_refusal("export \n").starts_with("env:1: expected NAME"));
  CHECK(file_refusal("=x").starts_with("env:1: expected NAME"));
  CHECK(file_refusal(std::string_view("A=\0b", 4)) == "env:1: a zero byte");
}

TEST_CASE("values that sound secret are masked, and those that hold a login") {
  for (const char* name : {"WANDB_API_KEY", "HF_TOKEN", "hf_token", "DB_PASSWORD", "PASSWD", "AWS_SECRET",
                           "CREDENTIALS", "GIT_AUTH", "SSH_PRIVATE"}) {
    CAPTURE(name);
    CHECK(masked(std::string(name) + "=value") == std::string(name) + "=***");
  }
  for (const char* entry :
       {"PATH=/token", "A=KEY", "http_proxy=http://proxy:3128", "A=", "NO_VALUE", "A=b@c"}) {
    CHECK(masked(entry) == entry);
  }
  CHECK(masked("https_proxy=http://ada:pw@proxy:3128") == "https_proxy=***");
}

}  // namespace dtrun::cmd::travelling_environment_test
