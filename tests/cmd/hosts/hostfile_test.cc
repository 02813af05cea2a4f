// Files of hosts as Open MPI, DeepSpeed, Hydra and Intel MPI have them. Open MPI's reading of the files was
// checked with mpirun 4.1.4 (--display-allocation).
#include "cmd/hosts/hostfile.h"

#include <doctest/doctest.h>

#include <chrono>
#include <random>

#include "proto/core/contract.h"
#include "tests/support/clock.h"

namespace dtrun::cmd::hostfile_test {
namespace {

// "node1=2 ada@node2=0": destinations and slots; or the message of a refusal.
std::string read_file(std::string_view text) {
  const auto hosts = parse_hostfile(text, "hosts");
  if (!hosts.ok()) {
    CHECK(hosts.status().exit_code() == kExitConfig);
    CHECK(hosts.status().message().starts_with("hosts:"));
    return hosts.status().message();
  }
  std::string result;
  for (const auto& host : hosts.value()) {
    CHECK(host.gpus.empty());
    result += (result.empty() ? "" : " ") + host.destination + "=" + std::to_string(host.slots);
  }
  return result;
}

}  // namespace

TEST_CASE("Open MPI's files are read as they are") {
  CHECK(read_file("# the cluster\n\n  node1 slots=2 max_slots=4\nnode2\tmax-slots=4 slots=3\nnode3\n") ==
        "node1=2 node2=3 node3=0");
  CHECK(read_file("a cpu=3\nb count=4\nc slots = 5\nd slots= 6\ne slots =7") == "a=3 b=4 c=5 d=6 e=7");
  CHECK(read_file("a slots=3 # eight\nb slots=4// none\nc // slots=9\nd slots=2#x\n") ==
        "hosts:2: expected slots from 1 to 16384, not '4//'");
  CHECK(read_file("c // slots=9\nd slots=2#x\n") == "c=0 d=2");
  CHECK(read_file("a max_slots=4\nb max_slots=1 slots=2\n") == "a=4 b=2");
  CHECK(read_file("a username=ada slots=2\nada@b slots=2\nc user-name=d") == "ada@a=2 ada@b=2 d@c=0");
  for (const char* key :
       {"max_slots", "max-slots", "slots_max", "slots-max", "max_cpu", "cpu-max", "count_max"}) {
    CAPTURE(key);
    CHECK(read_file("a " + std::string(key) + "=7") == "a=7");
  }
}

TEST_CASE("DeepSpeed's and Hydra's files, and Intel's groups, are read as they are") {
  CHECK(read_file("worker-0 slots=16\nworker-1 slots=8\n") == "worker-0=16 worker-1=8");
  CHECK(read_file("compute01:4\ncompute02:2 user=ada\n10.0.0.7:1\n") ==
        "compute01=4 ada@compute02=2 10.0.0.7=1");
  CHECK(read_file("host[01-03]:2\nbox[9-11]\n") == "host01=2 host02=2 host03=2 box9=0 box10=0 box11=0");
  CHECK(read_file("gpu[1-2] slots=4") == "gpu1=4 gpu2=4");
}

TEST_CASE(
    "lines may end as Windows ends them, the last one need not end, and the file may begin with a mark") {
  CHECK(read_file("\xef\xbb\xbfnode1 slots=2\r\n\r\nnode2:3\r\n# c\r\nnode3") == "node1=2 node2=3 node3=0");
}

TEST_CASE("an IPv6 address stands alone, or in brackets with its slots") {
  CHECK(read_file("fe80::1%eth0 slots=2\n[fd77::10]:4\nada@[::1]\nada@::2\n[::3] slots=5") ==
        "fe80::1%eth0=2 fd77::10=4 ada@::1=0 ada@::2=0 ::3=5");
  CHECK(read_file("node:1:2").ends_with("an IPv6 address with slots is written [ADDRESS]:SLOTS"));
  CHECK(read_file("[fd77::zz]").find("expected an IPv6 address in brackets") != std::string::npos);
  for (const char* text : {"::1%", "::1%e]2:2", "[::1%e[]]:2", "::1%\xff", "[::1%]:2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_hostfile(text, "hosts").ok());
  }
  CHECK(read_file("[::1]4").find("expected an IPv6 address in brackets") != std::string::npos);
}

TEST_CASE("a host that comes again without slots has one more; with slots, both lines are named") {
  CHECK(read_file("a\nb\na\na\n") == "a=3 b=0");
  const std::string rest = ": name it once with its slots, or without slots once for each";
  CHECK(read_file("a slots=2\nb\n\na slots=3\n") == "hosts:4: a is also in line 1" + rest);
  CHECK(read_file("a slots=2\na\n") == "hosts:2: a is also in line 1" + rest);
  CHECK(read_file("a\na\na:2\n") == "hosts:3: a is also in line 1" + rest);
  CHECK(read_file("ada@a\nbob@a\n") == "hosts:2: bob@a is ada@a in line 1: a host has one user");
  std::string often;
  for (int i = 0; i < kMaxWorkersPerNode; ++i) often += "a\n";
  CHECK(read_file(often) == "a=16384");
  CHECK(read_file(often + "a") == "hosts:16385: a is named more than 16384 times");
}

TEST_CASE("what is no host, or more than one, names its line and what was expected") {
  CHECK(read_file("") == "hosts: no hosts: expected lines like 'node3 slots=8'");
  CHECK(read_file("# none\n\n//\n") == "hosts: no hosts: expected lines like 'node3 slots=8'");
  CHECK(read_file("a\nb slots=0") == "hosts:2: expected slots from 1 to 16384, not '0'");
  CHECK(read_file("a slots=16384") == "a=16384");
  for (const char* number : {"16385", "-1", "2x", "", "\"3\"", "+3", "3,"}) {
    CAPTURE(number);
    CHECK(read_file("a slots=" + std::string(number)).starts_with("hosts:1: expected slots from 1 to 16384"));
  }
  CHECK(read_file("a:0").find("expected slots from 1 to 16384 after ':'") != std::string::npos);
  CHECK(read_file("a:").find("expected slots from 1 to 16384 after ':'") != std::string::npos);
  CHECK(read_file("a slots=2 slots=2") == "hosts:1: 'slots' is said twice");
  CHECK(read_file("a:2 slots=2").find("slots are said twice") != std::string::npos);
  CHECK(read_file("ada@a user=bob").find("the user is said twice") != std::string::npos);
  CHECK(read_file("a user=-oX").find("'-oX' is no user") != std::string::npos);
  CHECK(read_file("a user=").find("a=0") != std::string::npos);
  CHECK(read_file("a port=2222") == "hosts:1: a host's port belongs in ~/.ssh/config (Host, Port)");
  CHECK(read_file("a binding=user:0").find("expected slots=N, max_slots=N or user=NAME") !=
        std::string::npos);
  CHECK(read_file("a b").find("expected slots=N, max_slots=N or user=NAME after a host, not 'b'") !=
        std::string::npos);
  CHECK(read_file("a slots").find("not 'slots'") != std::string::npos);
  CHECK(read_file("a,b slots=2").find("'a,b' is no host") != std::string::npos);
  CHECK(read_file("slots=2") == "slots=2=0");
}

TEST_CASE("nothing that ssh would take for an option, or a shell for a command, is a host") {
  for (const char* text : {"-oProxyCommand=x", "ada@-x", "$(reboot)", "a;b", "a`b`", "@a", "-ada@a", "a|b",
                           "a&b", "'a'", "\x01", "a\x7f", "a\033[2J", "ssh://a:22", "ssh://ada@a:2222"}) {
    CAPTURE(text);
    const auto message = read_file(text);
    CHECK(message.starts_with("hosts:1: "));
    CHECK(message.find('\033') == std::string::npos);
    CHECK(message.find('\x01') == std::string::npos);
  }
  CHECK(read_file("EXAMPLE\\ada@a") == "EXAMPLE\\ada@a=0");
  CHECK(read_file("ada@example.org@a") == "ada@example.org@a=0");
}

TEST_CASE("garbage costs no memory, nor much time") {
  const test::Stopwatch watch;
  CHECK(parse_hostfile("a[0-65535]", "hosts").value().size() == kMaxNodes);
  for (const char* text : {"a[0-65536]", "a[0-999999999]", "a[0-65535]b[0-1]", "a[1-2]\nb[0-65534]",
                           "a[0-9][0-9][0-9][0-9][0-9]"}) {
    CAPTURE(text);
    CHECK(read_file(text).ends_with("more than 65536 hosts"));
  }
  std::string again;
  for (int i = 0; i < 20'000; ++i) again += "a[0-65535]\n";
  CHECK(read_file(again).ends_with("hosts are named more than 262144 times"));
  CHECK(read_file(std::string(1'000'000, 'x')).find("longer than any host's name") != std::string::npos);
  CHECK(read_file("a[0-65535]" + std::string(1'000'000, 'x')).size() < 200);
  CHECK(read_file("a[" + std::string(1'000'000, '0') + "-65535]").size() < 200);
  CHECK(watch.fair() < std::chrono::seconds(20));
}

TEST_CASE("any hosts, written in any of the formats, are read back") {
  std::mt19937 random(15);
  const auto below = [&](unsigned limit) { return random() % limit; };
  for (int round = 0; round < 300; ++round) {
    std::string text, expected;
    for (unsigned i = 0, hosts = 1 + below(20); i < hosts; ++i) {
      const auto slots = std::to_string(1 + below(64));
      const auto name = (below(3) == 0 ? "ada@n" : "n") + std::to_string(i);
      const std::string forms[] = {name + ":" + slots, name + " slots=" + slots,
                                   name + "\tmax_slots=99 slots = " + slots,
                                   "  " + name + "  cpu=" + slots + " # " + slots};
      text += forms[below(4)] + (below(2) == 0 ? "\r\n" : "\n") + (below(5) == 0 ? "# slots=1\n\n" : "");
      expected += (i == 0 ? "" : " ") + name + "=" + slots;
    }
    CHECK(read_file(text) == expected);
  }
}

}  // namespace dtrun::cmd::hostfile_test
