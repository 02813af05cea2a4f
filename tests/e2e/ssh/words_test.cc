// Arguments and environment of a job that is launched over ssh arrive byte for byte, whatever login shell a
// host has and whatever it prints.
#include <doctest/doctest.h>

#include <random>
#include <set>

#include "tests/e2e/ssh/launch.h"

namespace dtrun::words_test {

using namespace dtrun::test;

namespace {

constexpr int kLaunches = 8, kWords = 125;

const std::vector<std::string> kNasty{"",
                                      " ",
                                      "a b",
                                      "'",
                                      "\"",
                                      "\\",
                                      "\\\\'",
                                      "$HOME",
                                      "${x}",
                                      "$(touch pwned)",
                                      "`touch pwned`",
                                      "64(x2)",
                                      "-4C",
                                      R"({"a": [1, "b c"], "d": null})",
                                      "line\nbreak\n",
                                      "\n",
                                      "\r\n",
                                      "\t",
                                      "*",
                                      "?",
                                      "[a]",
                                      "~",
                                      "~/x",
                                      "!!",
                                      "!$ !1",
                                      "%s%n",
                                      "ä€🎉",
                                      "\xff\xfe\x80",
                                      "&& false",
                                      "; exit 3",
                                      "| cat",
                                      "> pwned",
                                      "<",
                                      "#",
                                      "--",
                                      "-H",
                                      "--nnodes",
                                      "=",
                                      "a=b",
                                      "{a,b}",
                                      "\x1b[31m",
                                      "^",
                                      "{host}",
                                      "\x01\x7f",
                                      std::string(65536, 'x'),
                                      "EOF"};

std::string fuzzed(std::mt19937& random) {
  if (random() % 2 == 0) return kNasty[random() % kNasty.size()];
  std::string text(random() % 200, ' ');
  for (char& c : text) c = static_cast<char>(1 + random() % 255);
  return text;
}

std::string with_ends(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + '\0';
  return text;
}

std::set<std::string> entries_of(const std::string& text) {
  std::set<std::string> entries;
  std::istringstream in(text);
  for (std::string entry; std::getline(in, entry, '\0');) entries.insert(entry);
  return entries;
}

SshNetwork every_shell() {
  SshNetwork network;
  for (const char* shell : {"/bin/bash", "/bin/dash", "/bin/tcsh", "/bin/zsh"}) {
    if (!std::filesystem::exists(shell)) continue;
    network.hosts.push_back({.shell = shell});
    network.hosts.push_back({.shell = shell, .prints = true});
  }
  return network;
}

}  // namespace

TEST_CASE("1,000 arguments and 1,000 variables arrive byte for byte at every login shell") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshNetwork network = every_shell();
  const SshHosts hosts(network);
  const int count = static_cast<int>(network.hosts.size());
  const std::string program = hosts.shared() / "dump";
  write_text(program,
             "#!/bin/sh\ncat /proc/$$/cmdline > \"$0.$(hostname).words\"\n"
             "cat /proc/$$/environ > \"$0.$(hostname).environment\"\n");
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  std::mt19937 random(1);
  for (int n = 0; n < kLaunches; ++n) {
    std::vector<std::string> words, environment;
    for (int i = 0; i < kWords; ++i) {
      words.push_back(fuzzed(random));
      const std::string name =
          i % 10 == 0 ? "BASH_FUNC_f" + std::to_string(i) + "%%" : "FUZZ" + std::to_string(i);
      environment.push_back(name + "=" + fuzzed(random));
    }
    const Ended ended =
        run(launch(hosts, count, joined({"--nproc_per_node", "1", "--", program}, words)), environment);
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    for (int i = 0; i < count; ++i) {
      const std::string dumped = program + "." + SshHosts::name(i);
      CAPTURE(network.hosts[static_cast<std::size_t>(i)].shell);
      CHECK(read_text(dumped + ".words") == with_ends(joined({"/bin/sh", program}, words)));
      const std::set<std::string> arrived = entries_of(read_text(dumped + ".environment"));
      for (const std::string& entry : environment) CHECK(arrived.count(entry) == 1);
      std::filesystem::remove(dumped + ".words");
    }
  }
}

}  // namespace dtrun::words_test
