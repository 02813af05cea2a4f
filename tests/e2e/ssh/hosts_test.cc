// The hosts that launches over ssh are tested on are what their header says, seen with plain ssh.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/ssh/ssh_hosts.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace dtrun::hosts_test {

using namespace dtrun::test;

namespace {

// ssh as a launcher calls it: never asks, gives up soon.
std::vector<std::string> ssh(const std::string& to, const std::string& command) {
  return {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", to, command};
}

// A host's answer, or the reason of a failure.
std::string answer(const SshHosts& hosts, const std::string& to, const std::string& command = "hostname") {
  const Ended ended = run(hosts.at_login(ssh(to, command)));
  return ended.exit_code == 0 ? ended.out : ended.err;
}

}  // namespace

TEST_CASE(
    "every host has a name, a user, processes and a login shell of its own, and dtrun where it should") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  SshNetwork network;
  for (const char* shell : {"/bin/bash", "/bin/dash", "/bin/tcsh", "/bin/zsh"}) {
    if (std::filesystem::exists(shell)) network.hosts.push_back({.shell = shell});
  }
  network.hosts.push_back({.prints = true});
  network.hosts.push_back({.dtrun = Installed::kNothing});
  const SshHosts hosts(network);
  const std::size_t last = network.hosts.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    const std::string name = SshHosts::name(static_cast<int>(i));
    const std::string shell = std::filesystem::path(network.hosts[i].shell).filename();
    CHECK(answer(hosts, name, "hostname; id -un; ps -o comm= -p $$; which dtrun; pwd") ==
          (i == last - 1 ? "Welcome to this host\n" : "") + name + "\nada\n" + shell + "\n" +
              (i == last ? "" : "/usr/local/bin/dtrun\n") + "/home/ada\n");
  }
  const Ended launcher = run(hosts.at_login({"sh", "-c", "hostname; pwd; dtrun --version"}));
  CAPTURE(launcher.err);
  CHECK(launcher.out.starts_with("login\n/home/ada\ndtrun "));
}

TEST_CASE("what each shell reads when it starts is printed before the command's output") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts(
      {.hosts = {{.shell = "/bin/bash", .prints = true}, {.shell = "/bin/tcsh", .prints = true}}});
  for (int i = 0; i < 2; ++i) {
    const Ended ended = run(hosts.at_login(ssh(SshHosts::name(i), "hostname")));
    CHECK(ended.out == "Welcome to this host\n" + SshHosts::name(i) + "\n");
    CHECK_MESSAGE(contains(ended.err, "a warning"), ended.err);
  }
}

TEST_CASE("a host's processes are told from others', and what outlives its session is among them") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = std::vector<SshHost>(2)});
  CHECK(hosts.processes(0).empty());
  CHECK(answer(hosts, "node0", "setsid sleep 1001 >/dev/null 2>&1 & setsid sleep 1002 >/dev/null 2>&1 &") ==
        "");
  // The shell may not have ended yet, nor executed its command.
  REQUIRE(eventually([&] {
    const auto running = hosts.processes(0);
    return running.size() == 2 && running[0].command.starts_with("sleep 100") &&
           running[1].command.starts_with("sleep 100");
  }));
  CHECK(hosts.processes(1).empty());
  kill(hosts.processes(0)[0].pid, SIGKILL);
  CHECK(eventually([&] { return hosts.processes(0).size() == 1; }));
}

TEST_CASE("trouble with a login is what the host's name says") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = std::vector<SshHost>(6)});
  hosts.forget_host_key(0);
  hosts.change_host_key(1);
  hosts.stop_sshd(2);
  hosts.black_hole(3);
  hosts.cut(4);
  const std::vector<std::string> reasons{"Host key verification failed", "IDENTIFICATION HAS CHANGED",
                                         "Connection refused", "timed out", "timed out"};
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const std::string said = answer(hosts, SshHosts::name(static_cast<int>(i)));
    CHECK_MESSAGE(contains(said, reasons[i]), said);
  }
  CHECK(contains(answer(hosts, "root@node5"), "Permission denied"));
  CHECK(answer(hosts, "node5") == "node5\n");
  hosts.mend(4);
  CHECK(eventually([&] { return answer(hosts, "node4") == "node4\n"; }));
}

TEST_CASE("behind a jump host that takes few logins at once, the hosts are reached through it alone") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = std::vector<SshHost>(2), .jump = SshHost{.sshd = "MaxStartups 1:100:1\n"}});
  CHECK(answer(hosts, "node1") == "node1\n");
  CHECK(answer(hosts, hosts.address(1)) != "node1\n");
  std::vector<std::unique_ptr<Process>> at_once;
  for (int i = 0; i < 12; ++i)
    at_once.push_back(std::make_unique<Process>(hosts.at_login(ssh("node0", "hostname"))));
  int refused = 0;
  for (const auto& login : at_once) refused += login->wait() != 0;
  CHECK(refused > 0);
}

TEST_CASE("a filtered port lets logins and the other direction through") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (const bool ipv6 : {false, true}) {
    const SshHosts hosts({.hosts = std::vector<SshHost>(2), .ipv6 = ipv6, .docker0 = true, .dead_nic = true});
    hosts.filter(1, 0);
    const auto reaches = [&](int from, int to) {
      Process server(hosts.on(to, {"python3", "-c", R"(
import socket, sys
with socket.create_server(("", 5000), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    print("listening", flush=True)
    server.accept())"}));
      REQUIRE_MESSAGE(server.wait_for_out("listening"), server.err());
      return run(hosts.on(from, {"python3", "-c",
                                 "import socket, sys; socket.create_connection((sys.argv[1], 5000), 1)",
                                 hosts.address(to)}))
                 .exit_code == 0;
    };
    CHECK(reaches(0, 1));
    CHECK_FALSE(reaches(1, 0));
    CHECK(answer(hosts, "node0") == "node0\n");
  }
}

TEST_CASE("interfaces and names that mislead") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = std::vector<SshHost>(2),
                        .names = false,
                        .name_is_loopback = true,
                        .docker0 = true,
                        .dead_nic = true});
  const std::string misleading = "172.17.0.1 192.168.7.2 10.77.0.2 ";
  CHECK(answer(hosts, "node1", "hostname -I").substr(0, misleading.size()) == misleading);
  CHECK(answer(hosts, "node1", "getent ahostsv4 node1").starts_with("127.0.1.1 "));
  CHECK(answer(hosts, "node1", "getent hosts node0 || echo unknown") == "unknown\n");
}

}  // namespace dtrun::hosts_test
