// A job that cannot run on all of its hosts: every host that is the reason is named with a way out, and
// nothing is started anywhere.
#include <doctest/doctest.h>

#include "tests/e2e/ssh/launch.h"
#include "tests/e2e/training.h"
#include "tests/support/clock.h"

namespace dtrun::refusals_test {

using namespace dtrun::test;

namespace {

// As its user, on the host.
void there(const SshHosts& hosts, int host, const std::string& command) {
  output_of(hosts.at_login({"ssh", SshHosts::name(host), command}));
}

void check_nothing_started(const SshHosts& hosts, int count) {
  CHECK_FALSE(std::filesystem::exists(hosts.shared() / "started"));
  for (int i = 0; i < count; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
}

}  // namespace

TEST_CASE("what is missing on one host is a line with host and path, and exit code 66") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(3)});
  const std::string program = "/home/ada/bin/prog", config = hosts.shared() / "job.json";
  for (int i = 0; i < 2; ++i) {
    there(hosts, i,
          "mkdir work bin && ln -s /bin/touch bin/prog && ln -s /usr/share/datasets/fashion-mnist data");
  }
  there(hosts, 2, "mkdir -m 555 closed");
  write_text(config, read_text(kConfig));
  const std::string started = hosts.shared() / "started";
  struct Case {
    std::vector<std::string> words;
    std::string path;
    int exit_code;
  };
  const std::vector<Case> cases{
      {{"--chdir", "/home/ada/work", "--", "touch", started}, "/home/ada/work", 66},
      {{"--", program, started}, program, 66},
      {{config, "data.path=/home/ada/data"}, "/home/ada/data", 66},
      {{config, "output_dir=/home/ada/closed/out"}, "/home/ada/closed", 73},
      {{"--log_dir", "/home/ada/closed/logs", "--", "touch", started}, "/home/ada/closed", 73},
  };
  for (const Case& one : cases) {
    const Ended ended = run(launch(hosts, 3, joined({"--nproc_per_node", "1"}, one.words)));
    CHECK_MESSAGE(ended.exit_code == one.exit_code, ended.err);
    CHECK_MESSAGE(has_line(ended.err, "node2: ", one.path), ended.err);
    CHECK_MESSAGE(contains(ended.err, "nothing was started"), ended.err);
    CHECK_MESSAGE(!contains(ended.err, "node0: "), ended.err);
    check_nothing_started(hosts, 3);
  }
}

TEST_CASE("all hosts that cannot be logged in to are named in one list with remedies, within 12 s") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(6)});
  hosts.forget_host_key(0);
  hosts.change_host_key(1);
  hosts.stop_sshd(2);
  hosts.black_hole(3);
  const Stopwatch since;
  const Ended ended =
      run(hosts.at_login({"dtrun", "-H", "node[0-3],bob@node4,node5,nowhere", "--nproc_per_node", "1", "--",
                          "touch", hosts.shared() / "started"}));
  CHECK(since.fair() < std::chrono::seconds(12));
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 69);
  CHECK(has_line(ended.err, "node0: ", "--accept_new_host_keys"));
  const std::string shown =
      output_of(hosts.on(0, {"ssh-keygen", "-lf", hosts.host_key(0)}));  // "256 SHA256:… no comment"
  CHECK(has_line(ended.err, "node0: ", shown.substr(4, shown.find(' ', 4) - 4)));
  CHECK(has_line(ended.err, "node1: ", "ssh-keygen -R"));
  CHECK(has_line(ended.err, "node2: ", "Connection refused"));
  CHECK(has_line(ended.err, "node3: ", "timed out"));
  CHECK(has_line(ended.err, "node4: ", "Permission denied"));
  CHECK(has_line(ended.err, "nowhere: ", "Could not resolve hostname"));
  CHECK_FALSE(contains(ended.err, "node5: "));
  check_nothing_started(hosts, 6);
}

TEST_CASE("new host keys are accepted where that is asked for, a changed one never") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(2)});
  const std::vector<std::string> job{"--accept_new_host_keys", "--nproc_per_node", "1", "--", "true"};
  hosts.forget_host_key(0);
  const Ended accepted = run(launch(hosts, 2, job));
  CHECK_MESSAGE(accepted.exit_code == 0, accepted.err);
  // Its name may be hashed there.
  const std::string key = read_text(hosts.host_key(0).string() + ".pub");
  CHECK(
      contains(read_text(hosts.seen_at_login("/home/ada/.ssh/known_hosts")), key.substr(0, key.rfind(' '))));
  hosts.change_host_key(1);
  const Ended refused = run(launch(hosts, 2, job));
  CHECK_MESSAGE(refused.exit_code == 69, refused.err);
  CHECK_MESSAGE(has_line(refused.err, "node1: ", "ssh-keygen -R"), refused.err);
}

TEST_CASE("a key with a passphrase is no question that nobody hears") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(1)});
  output_of(hosts.at_login(
      {"ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", "/home/ada/.ssh/id_ed25519"}));
  const Ended ended = run(launch(hosts, 1, {"--nproc_per_node", "1", "--", "true"}));
  CHECK(ended.exit_code == 69);
  CHECK_MESSAGE(has_line(ended.err, "node0: ", "ssh-add"), ended.err);
}

TEST_CASE("a filter between two hosts of which none is the first is named, and the trainer does not start") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(3)});
  hosts.filter(2, 1);
  const std::string config = hosts.shared() / "job.json", output = hosts.shared() / "out";
  write_text(config, read_text(kConfig));
  const Ended ended =
      run(launch(hosts, 3, {"--nproc_per_node", "1", config, "output_dir=" + output, "train.max_steps=1"}));
  CHECK_MESSAGE(ended.exit_code == 69, ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node2: does not reach node1 on port", hosts.address(1)), ended.err);
  CHECK_MESSAGE(has_line(ended.err, "2 of 3 hosts can run the job; nothing was started"), ended.err);
  CHECK_FALSE(contains(ended.err, "node1: does not reach"));  // the other way is open
  CHECK_FALSE(std::filesystem::exists(output));
  check_nothing_started(hosts, 3);

  const Ended range = run(launch(
      hosts, 3,
      {"--nnodes", "2:3", "--nproc_per_node", "1", config, "output_dir=" + output, "train.max_steps=1"}));
  CHECK_MESSAGE(range.exit_code == 0, range.err);
  CHECK_MESSAGE(has_line(range.err, "node2: cannot take part"), range.err);
  CHECK(std::filesystem::exists(output));
}

TEST_CASE("another program is only warned of a filter between two hosts, of which it may need nothing") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(3)});
  hosts.filter(2, 1);
  const Ended ended =
      run(launch(hosts, 3, {"--nproc_per_node", "1", "--", "touch", hosts.shared() / "started"}));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node2: does not reach node1 on port", hosts.address(1)), ended.err);
  CHECK(std::filesystem::exists(hosts.shared() / "started"));
}

TEST_CASE("a port of the first host that is filtered is named before a worker starts") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts({.hosts = alike(3)});
  hosts.filter(2, 0);
  const Ended ended =
      run(launch(hosts, 3, {"--nproc_per_node", "1", "--", "touch", hosts.shared() / "started"}));
  CHECK_MESSAGE(ended.exit_code == 69, ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node2: reaches no address of node0 on port"), ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node2: ", hosts.address(0)), ended.err);
  check_nothing_started(hosts, 3);
}

TEST_CASE("a host without room for dtrun says so with tar's reason and the folder") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  SshNetwork network{.hosts = alike(2)};
  network.hosts[1].dtrun = Installed::kNothing;
  const SshHosts hosts(network);
  output_of(hosts.on(1, {"sh", "-ec",
                         "mkdir /home/ada/.cache; mount -t tmpfs -o size=2m tmpfs /home/ada/.cache; "
                         "chown 4242:4242 /home/ada/.cache"}));
  const Ended ended =
      run(launch(hosts, 2, {"--nproc_per_node", "1", "--", "touch", hosts.shared() / "started"}));
  CHECK_MESSAGE(ended.exit_code == 73, ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node1: cannot bring dtrun to /home/ada/.cache/dtrun (tar: ",
                         "No space left on device"),
                ended.err);
  CHECK_MESSAGE(has_line(ended.err, "node1: ", "make room there"), ended.err);
  check_nothing_started(hosts, 2);
}

}  // namespace dtrun::refusals_test
