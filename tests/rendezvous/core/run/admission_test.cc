// The messages about a node that runs something else than the others.
#include "rendezvous/core/run/admission.h"

#include <doctest/doctest.h>

#include <utility>

namespace dtrun::rendezvous::admission_test {
namespace {

using Words = std::vector<std::string>;

std::string told(const Words& theirs, const Words& ours) {
  Settings run;
  run.host = "node0";
  run.command = ours;
  Join join;
  join.host = "node1";
  join.command = theirs;
  return other_command(run, join);
}

}  // namespace

TEST_CASE("the first word that differs is named, with the option that it may belong to") {
  CHECK(told({"w.py", "3"}, {"w.py", "3"}) == "");
  CHECK(told({}, {}) == "");
  CHECK(told({"w.py", "3"}, {"w.py", "1"}) ==
        "node1 runs another command than node0: \"w.py 3\" instead of \"w.py 1\"");
  CHECK(told({"v.py"}, {"w.py", "1"}) ==
        "node1 runs another command than node0: \"v.py\" instead of \"w.py …\"");
  CHECK(told({"python3", "w.py", "--lr", "0.1", "--x"}, {"python3", "w.py", "--lr", "0.2", "--x"}) ==
        "node1 runs another command than node0: \"… --lr 0.1 …\" instead of \"… --lr 0.2 …\"");
  CHECK(told({"w.py", "a", "b"}, {"w.py", "a"}) ==
        "node1 runs another command than node0: \"… a b\" instead of \"… a\"");
}

TEST_CASE("another program is another job, and refused on both terminals; other arguments are not") {
  const auto differ = [](const Words& theirs, const Words& ours) {
    Settings run;
    run.run_id = "none";
    run.host = "node0";
    run.command = ours;
    Join join;
    join.run_id = "none";
    join.command = theirs;
    return refuse_other(run, join);
  };
  const Words ours = {"/usr/bin/python3", "-u", "/a/first.py", "--lr", "1"};
  const auto refused = differ({"python3.13", "-X", "dev", "-u", "second.py", "--lr", "1"}, ours);
  REQUIRE(refused);
  CHECK(refused->reason == Rejected::kOtherSettings);
  CHECK(
      refused->message.find("this node starts second.py, but run \"none\", which node0 joined first, starts "
                            "first.py: another program is another job") == 0);
  CHECK(refused->message.find("Give it a --rdzv_id of its own") != std::string::npos);
  CHECK(refused->to_others ==
        "it starts second.py, and this run starts first.py; another job needs a --rdzv_id of its own");
  CHECK_FALSE(differ({"python", "/b/first.py", "--lr", "2"}, ours));
  CHECK(differ({"python3", "-m", "first"}, ours));
  CHECK_FALSE(differ({"sh", "-c", "A=1 ./train"}, {"sh", "-c", "A=2 ./train"}));
  CHECK_FALSE(differ({"bash", "-lc", "a"}, {"bash", "-lc", "b"}));
  CHECK(differ({"sh", "-e", "a.sh"}, {"sh", "-e", "b.sh"}));
  CHECK(differ({"./b"}, {"./a"}));
  CHECK_FALSE(differ({"./a", "-x"}, {"/home/ada/a", "-y"}));
  CHECK(program_of({"bash", "-o", "pipefail", "run.sh"}) == "run.sh");
  CHECK(program_of({"python3", "-m"}) == "python3");
  CHECK(program_of({"python3", "-c", "print()"}) == "python3");
}

TEST_CASE("a script given as a word does not fill the terminal, and stays text") {
  std::string script;
  for (int i = 0; i < 300; ++i) script += "ä";
  const std::string text = told({"sh", "-c", script}, {"sh", "-c", "x"});
  CHECK(text.size() < 200);
  CHECK(text.find("-c ää") != std::string::npos);
  CHECK(text.find("ä\"") != std::string::npos);
}

TEST_CASE("a program and a config in one run are refused with the words of both") {
  Settings run;
  Join join;
  join.job = "{}";
  const auto refused = refuse_other(run, join);
  REQUIRE(refused);
  CHECK(refused->reason == Rejected::kOtherSettings);
  CHECK(refused->message.starts_with("this node trains a config, but run "));
  CHECK(refused->message.find("starts a program: another program is another job. Give it a --rdzv_id") !=
        std::string::npos);
  CHECK(refused->to_others ==
        "it trains a config, and this run starts a program; another job needs a --rdzv_id of its own");
}

TEST_CASE("nodes that compute on different devices are refused by their names, since their bits differ") {
  Settings run;
  run.run_id = "r";
  run.job = "{}";
  run.host = "node0";
  run.device = "cuda";
  run.gpu = "NVIDIA H200";
  Join join;
  join.run_id = "r";
  join.job = "{}";
  join.host = "node1";
  join.device = "cuda";
  join.gpu = "NVIDIA H200";
  CHECK_FALSE(refuse_other(run, join));
  join.gpu = "NVIDIA H100 80GB HBM3";
  auto refused = refuse_other(run, join);
  REQUIRE(refused);
  CHECK(refused->reason == Rejected::kOtherDevice);
  CHECK(refused->message ==
        "node1 would compute on cuda (NVIDIA H100 80GB HBM3), but node0, which joined run \"r\" first, "
        "computes "
        "on cuda (NVIDIA H200): other devices give other bits; set the config's device, or leave one of them "
        "out");
  join.device = "cpu";
  join.gpu = "";
  refused = refuse_other(run, join);
  REQUIRE(refused);
  CHECK(refused->reason == Rejected::kOtherDevice);
  CHECK(refused->to_others == "it would compute on cpu, and this run computes on cuda (NVIDIA H200)");
}

TEST_CASE("nodes whose processors give other bits are refused by what they compute with, if both tell it") {
  Settings run;
  run.run_id = "r";
  run.job = "{}";
  run.host = "node0";
  run.device = "cpu, AVX-512 loops, oneDNN 3.6.2 with AVX512_CORE_AMX";
  Join join;
  join.run_id = "r";
  join.job = "{}";
  join.host = "node1";
  join.device = run.device;
  CHECK_FALSE(refuse_other(run, join));
  join.device = "cpu, AVX2 loops, oneDNN 2.6.3 with AVX2";
  const auto refused = refuse_other(run, join);
  REQUIRE(refused);
  CHECK(refused->reason == Rejected::kOtherDevice);
  CHECK(
      refused->message ==
      "node1 would compute on cpu, AVX2 loops, oneDNN 2.6.3 with AVX2, but node0, which joined run \"r\" "
      "first, computes on cpu, AVX-512 loops, oneDNN 3.6.2 with AVX512_CORE_AMX: together they give the bits "
      "of neither; leave one of them out, or set train.allow_mixed_devices");
  CHECK(refused->to_others ==
        "it would compute on cpu, AVX2 loops, oneDNN 2.6.3 with AVX2, and this run computes on cpu, AVX-512 "
        "loops, oneDNN 3.6.2 with AVX512_CORE_AMX");
  join.device = "cpu, without fused multiply-add";
  CHECK(refuse_other(run, join)->message.ends_with("no worker computes without it; leave node1 out"));
  std::swap(run.device, join.device);
  CHECK(refuse_other(run, join)->message.ends_with("no worker computes without it; leave node0 out"));
  std::swap(run.device, join.device);
  join.device = "cpu";
  CHECK_FALSE(refuse_other(run, join));
  std::swap(run.device, join.device);
  CHECK_FALSE(refuse_other(run, join));
  run.device = "cuda";
  REQUIRE(refuse_other(run, join));
  CHECK(refuse_other(run, join)->message.find("set the config's device") != std::string::npos);
}

}  // namespace dtrun::rendezvous::admission_test
