// A detached job on hosts with real sshds.
#include <doctest/doctest.h>

#include "tests/e2e/ssh/launch.h"

namespace dtrun::detach_test {

using namespace dtrun::test;

namespace {

bool a_login_is_open(const SshHosts& hosts, int host) {
  return contains(run(hosts.on(host, {"ps", "-eo", "args"})).out, "sshd: ada");
}

}  // namespace

TEST_CASE("a detached job holds no login, and who comes back needs no option of the launch again") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  SshNetwork network{.hosts = alike(2)};
  for (SshHost& host : network.hosts) host.sshd = "Port 2222\n";
  const SshHosts hosts(network);
  for (int i = 0; i < 2; ++i) hosts.forget_host_key(i);
  const std::string go = hosts.shared() / "go";
  const Ended launched = run(hosts.at_login(
      {"dtrun", "-H", "ada@node0,ada@node1", "--ssh", "ssh -p 2222 -o UserKnownHostsFile=/dev/null",
       "--accept_new_host_keys", "--detach", "--rdzv_id", "far", "--nproc_per_node", "1", "--", "sh", "-c",
       "echo begun at $(hostname); while ! test -e " + go + "; do sleep 0.1; done; exit $((RANK * 7))"}));
  REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
  for (int i = 0; i < 2; ++i) {
    CHECK(eventually([&] { return !a_login_is_open(hosts, i); }));
    CHECK(!hosts.processes(i).empty());
  }
  Process attached(hosts.at_login({"dtrun", "attach", "far"}));
  CHECK_MESSAGE(attached.wait_for_out("begun at node0"), attached.err());
  CHECK_MESSAGE(attached.wait_for_out("begun at node1"), attached.err());
  write_text(go, "");
  const Ended ended = attached.end();
  CHECK_MESSAGE(ended.exit_code == 7, ended.err);
  for (int i = 0; i < 2; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
}

TEST_CASE("dtrun stop ends a detached job on every host") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(3)});
  const Ended launched = run(launch(hosts, 3, joined({"--detach"}, lasting_program())));
  REQUIRE_MESSAGE(launched.exit_code == 0, launched.err);
  const Ended stopped = run(hosts.at_login({"dtrun", "stop"}));
  CHECK_MESSAGE(stopped.exit_code == 0, stopped.err);
  for (int i = 0; i < 3; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
}

}  // namespace dtrun::detach_test
