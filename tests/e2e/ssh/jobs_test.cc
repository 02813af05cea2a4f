// Jobs that are launched over ssh on networks and hosts as people have them: addresses that mislead, no dtrun
// there, a jump host that refuses, the built-in trainer.
#include <doctest/doctest.h>
#include <signal.h>

#include "tests/e2e/ssh/launch.h"
#include "tests/e2e/training.h"

namespace dtrun::jobs_test {

using namespace dtrun::test;

namespace {

// The worker of every host is heard, and the job ends with 0.
void check_runs(const SshHosts& hosts, int count) {
  const Ended ended = run(
      launch(hosts, count,
             {"--nproc_per_node", "1", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE at $(hostname)"}));
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  for (int i = 0; i < count; ++i) {
    CHECK_MESSAGE(contains(ended.out, "rank " + std::to_string(i) + " of " + std::to_string(count) + " at " +
                                          SshHosts::name(i)),
                  ended.out);
  }
}

// The trainer's config as "job.json", at the login host and on no other.
void put_config(const SshHosts& hosts) {
  const std::filesystem::path config = hosts.seen_at_login("/home/ada/job.json");
  write_text(config, read_text(kConfig));
  std::filesystem::permissions(config, std::filesystem::perms(0644));
}

}  // namespace

TEST_CASE(
    "the address of the first host is found: docker0 first, a dead NIC, names that mislead or are unknown") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (const bool ipv6 : {false, true}) {
    const SshHosts hosts({.hosts = alike(3),
                          .ipv6 = ipv6,
                          .names = false,
                          .name_is_loopback = true,
                          .docker0 = true,
                          .dead_nic = true});
    check_runs(hosts, 3);
  }
}

TEST_CASE("with IPv6 alone") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  check_runs(SshHosts({.hosts = alike(2), .ipv6 = true}), 2);
}

TEST_CASE("a host without dtrun, or with another build of it, gets this one, once") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  SshNetwork network{.hosts = alike(4)};
  network.hosts[3].dtrun = Installed::kAnotherBuild;
  network.hosts[0].dtrun = Installed::kNothing;
  network.hosts[1] = {.shell = "/bin/tcsh", .prints = true, .dtrun = Installed::kNothing};
  const SshHosts hosts(network);
  REQUIRE(run(hosts.on(3, {"dtrun", "--version"})).exit_code == 0);
  const std::vector<std::string> job = launch(hosts, 4, {"--nproc_per_node", "1", "--", "true"});
  const Ended first = run(job);
  CHECK_MESSAGE(first.exit_code == 0, first.err);
  CHECK_MESSAGE(contains(first.err, "bringing dtrun to node0"), first.err);
  CHECK_MESSAGE(contains(first.err, "bringing dtrun to node1"), first.err);
  CHECK_MESSAGE(!contains(first.err, "bringing dtrun to node2"), first.err);
  CHECK_MESSAGE(contains(first.err, "bringing dtrun to node3"), first.err);
  const Ended second = run(job);
  CHECK_MESSAGE(second.exit_code == 0, second.err);
  CHECK_MESSAGE(!contains(second.err, "bringing"), second.err);
}

TEST_CASE(
    "a host that waits takes the place of one that is lost, and one that is missing at the start is told "
    "of") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(5, impatient())});
  hosts.stop_sshd(4);
  Process job(launch(hosts, 5,
                     {"--nnodes", "2:3", "--nproc_per_node", "1", "--", "sh", "-c",
                      "echo rank $RANK of $WORLD_SIZE at $(hostname) generation $TORCHELASTIC_RESTART_COUNT; "
                      "sleep 1000 & wait"}),
              {impatient()});
  const auto up = [&] {
    std::vector<int> at;
    for (int host = 0; host < 4; ++host)
      if (has_line(job.out(), " of 3 at " + SshHosts::name(host) + " ")) at.push_back(host);
    return at;
  };
  REQUIRE_MESSAGE(eventually([&] { return up().size() == 3; }), job.err());
  CHECK_MESSAGE(has_line(job.err(), "node4: ", "Connection refused"), job.err());
  // Not node0, which has the coordinator. The late node waits.
  hosts.cut(up().back());
  CHECK_MESSAGE(eventually([&] { return up().size() == 4; }, Process::Duration(90000)), job.err());
  job.signal(SIGINT);
  CHECK(job.end().exit_code == 130);
  for (int host = 0; host < 4; ++host)
    CHECK_MESSAGE(is_idle(hosts, host, Process::Duration(30000)), running_on(hosts, host));
}

TEST_CASE("hosts behind a jump host that refuses most logins at once all come up") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(16), .jump = SshHost{.sshd = "MaxStartups 2:50:5\n"}});
  check_runs(hosts, 16);
}

TEST_CASE("the trainer on three hosts, of which one has no dtrun, makes the model of one process") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const std::vector<std::string> job{"train.max_steps=40", "train.save_steps=20"};
  Folder elsewhere;
  REQUIRE(run(training_on_real_images(standalone(1), elsewhere / "out", job)).exit_code == 0);

  SshNetwork network{.hosts = alike(3)};
  network.hosts[2].dtrun = Installed::kNothing;
  const SshHosts hosts(network);
  put_config(hosts);
  const Ended ended = run(launch(
      hosts, 3,
      joined({"--nproc_per_node", "1", "--lanes", "1", "job.json", "output_dir=out", "train.eval_steps=0"},
             job)));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(model(hosts.seen_from_here(0, "/home/ada/out")) == model(elsewhere / "out"));
}

TEST_CASE("the host with the coordinator is lost: another one takes over, and the model is the same") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const std::vector<std::string> constant{"train.lr_scheduler_type=constant", "train.save_steps=1000000"};
  const SshHosts hosts({.hosts = alike(3)});
  put_config(hosts);
  const auto out = [&](int host) { return hosts.seen_from_here(host, "/home/ada/out"); };
  Process job(launch(hosts, 3,
                     joined({"--nnodes", "2:3", "--nproc_per_node", "1", "--lanes", "1", "--rdzv_conf",
                             lost_after_two_seconds(), "job.json", "output_dir=out", "train.eval_steps=0",
                             "train.logging_steps=1", kEndless},
                            constant)));
  REQUIRE_MESSAGE(trains(out(0), 10), job.err());
  const long before = steps_done(out(0));
  for (const SshHosts::Running& process : hosts.processes(0))
    if (contains(process.command, "dtrun agent")) kill(process.pid, SIGKILL);
  REQUIRE_MESSAGE(eventually([&] { return std::max(steps_done(out(1)), steps_done(out(2))) > before + 20; }),
                  job.err());
  job.signal(SIGTERM);
  CHECK_MESSAGE(job.wait() == 128 + SIGTERM, job.err());
  CHECK_MESSAGE(contains(job.err(), "node0: the line to it is gone"), job.err());
  const auto [step, bytes] = std::max(newest_checkpoint(out(1)), newest_checkpoint(out(2)));
  REQUIRE_MESSAGE(step > before + 20, job.err());
  Folder elsewhere;
  const std::string steps = "train.max_steps=" + std::to_string(step);
  REQUIRE(
      run(training_on_real_images(standalone(1), elsewhere / "out", joined({steps}, constant))).exit_code ==
      0);
  CHECK(bytes == model(elsewhere / "out"));
  for (int host = 0; host < 3; ++host) CHECK_MESSAGE(is_idle(hosts, host), running_on(hosts, host));
}

TEST_CASE("a host of a range that was lost gets an agent again, and takes part") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(2)});
  put_config(hosts);
  const auto out = [&](int host) { return hosts.seen_from_here(host, "/home/ada/out"); };
  Process job(launch(hosts, 2,
                     {"--nnodes", "1:2", "--nproc_per_node", "1", "--lanes", "1", "job.json",
                      "output_dir=out", "train.eval_steps=0", "train.logging_steps=1", "train.save_steps=20",
                      "train.lr_scheduler_type=constant", kEndless}));
  REQUIRE_MESSAGE(trains(out(0), 30), job.err());
  const auto goes_on_with_both = [&](long steps) {
    return eventually([&] {
      return contains(job.err(), "going on with 2 workers on 2 nodes") &&
             std::max(steps_done(out(0)), steps_done(out(1))) > steps;
    });
  };
  SUBCASE("its cable was cut until its line was given up") {
    hosts.cut(1);
    CHECK_MESSAGE(job.wait_for_err("node1: the line to it is gone", Process::Duration(150000)), job.err());
    CHECK_MESSAGE(job.wait_for_err("going on with 1 worker on 1 node"), job.err());
    const long steps = steps_done(out(0));
    hosts.mend(1);
    CHECK_MESSAGE(job.wait_for_err("node1 is back", Process::Duration(150000)), job.err());
    CHECK_MESSAGE(goes_on_with_both(steps + 20), job.err());
  }
  SUBCASE("its agent was killed, and the coordinator with it") {
    for (const SshHosts::Running& process : hosts.processes(0))
      if (contains(process.command, "dtrun agent")) kill(process.pid, SIGKILL);
    CHECK_MESSAGE(job.wait_for_err("node0: the line to it is gone"), job.err());
    CHECK_MESSAGE(goes_on_with_both(std::max(steps_done(out(0)), steps_done(out(1))) + 20), job.err());
  }
  job.signal(SIGTERM);
  CHECK_MESSAGE(job.wait() == 128 + SIGTERM, job.err());
  CHECK_MESSAGE(!contains(job.err(), "failed ("), job.err());
  MESSAGE(job.err());
  for (int host = 0; host < 2; ++host) CHECK_MESSAGE(is_idle(hosts, host), running_on(hosts, host));
}

TEST_CASE("a worker has neither the user's ssh agent nor a forwarded port, unless --ssh says so") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(1)});
  write_text(hosts.seen_at_login("/home/ada/.ssh/config"),
             "Host *\n  ForwardAgent yes\n  RemoteForward 45678 127.0.0.1:22\n");
  Process agent(hosts.at_login({"ssh-agent", "-D", "-a", "/home/ada/agent"}));
  REQUIRE(eventually([&] { return std::filesystem::exists(hosts.seen_at_login("/home/ada/agent")); }));
  const std::string ask = "echo agent: ${SSH_AUTH_SOCK:-none}; grep -c :B26E /proc/net/tcp";  // 45678
  const auto ends = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words = hosts.at_login({"env", "SSH_AUTH_SOCK=/home/ada/agent"});
    return run(joined(
        words, joined({"dtrun", "-H", "node0"},
                      joined(options, {"--nproc_per_node", "1", "--", "sh", "-c", ask + " || true"}))));
  };
  const Ended plain = ends({});
  CHECK_MESSAGE(plain.exit_code == 0, plain.err);
  CHECK_MESSAGE(contains(plain.out, "agent: none\n"), plain.out);
  CHECK_MESSAGE(contains(plain.out, " 0\n"), plain.out);
  const Ended asked = ends({"--ssh", "ssh -A -o ClearAllForwardings=no"});
  CHECK_MESSAGE(asked.exit_code == 0, asked.err);
  CHECK_MESSAGE(contains(asked.out, "agent: /"), asked.out);
  CHECK_MESSAGE(contains(asked.out, " 1\n"), asked.out);
}

TEST_CASE("standard input reaches a worker on another host") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(1)});
  const std::vector<std::string> words = launch(hosts, 1, {"--nproc_per_node", "1", "--", "wc", "-c"});
  const Ended ended = run(joined({"sh", "-c", "seq 1 200000 | \"$0\" \"$@\""}, words));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK_MESSAGE(contains(ended.out, "1288895\n"), ended.out);  // as `seq 1 200000 | wc -c` has it
}

}  // namespace dtrun::jobs_test
