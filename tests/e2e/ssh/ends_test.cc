// However a job that was launched over ssh ends, nothing of it is left on any host, and another job of the
// same user on the same hosts runs on.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <thread>

#include "tests/e2e/ssh/launch.h"

namespace dtrun::ends_test {

using namespace dtrun::test;

namespace {

constexpr int kHosts = 3;
// An agent that hears nothing for a minute ends its part of the job.
constexpr auto kLimit = Process::Duration(70000);

// DTRUN_TEST_SSH_ROUNDS=25 makes 100 launches of it.
int rounds() {
  const char* const text = std::getenv("DTRUN_TEST_SSH_ROUNDS");
  return text != nullptr ? std::atoi(text) : 1;
}

bool all_up(const Process& job) {
  return eventually([&] {
    std::size_t count = 0;
    const std::string out = job.out();
    for (std::size_t at = 0; (at = out.find("up\n", at)) != out.npos; ++at) ++count;
    return count == kHosts;
  });
}

// Not its watchdog, which is younger; 0: there is none yet.
pid_t agent_on(const SshHosts& hosts, int host, const std::set<pid_t>& but_these = {}) {
  for (const SshHosts::Running& process : hosts.processes(host))
    if (contains(process.command, "dtrun agent") && but_these.count(process.pid) == 0) return process.pid;
  return 0;
}

// Two jobs of one user on the same hosts: one to be ended, and one that must not notice.
class TwoJobs {
 public:
  TwoJobs() {
    REQUIRE_MESSAGE(all_up(other_), other_.err());
    for (int i = 0; i < kHosts; ++i) {
      for (const SshHosts::Running& process : hosts.processes(i)) others_.insert(process.pid);
    }
    job = std::make_unique<Process>(launch(hosts, kHosts, lasting_program()));
    REQUIRE_MESSAGE(all_up(*job), job->err());
  }

  // The job's processes on a host.
  std::vector<SshHosts::Running> of_job(int host) const {
    std::vector<SshHosts::Running> found;
    for (const SshHosts::Running& process : hosts.processes(host)) {
      if (others_.count(process.pid) == 0) found.push_back(process);
    }
    return found;
  }

  pid_t agent(int host) const {
    for (const SshHosts::Running& process : of_job(host)) {
      if (contains(process.command, "dtrun agent")) return process.pid;
    }
    FAIL("no agent runs on " << SshHosts::name(host));
    return -1;
  }

  void check_only_the_other_is_left() const {
    for (int i = 0; i < kHosts; ++i) {
      const bool gone = eventually([&] { return of_job(i).empty(); }, kLimit);
      CHECK_MESSAGE(gone, running_on(hosts, i));
    }
    for (const pid_t pid : others_) CHECK(is_alive(pid));
  }

  const SshHosts hosts{{.hosts = alike(kHosts)}};
  std::unique_ptr<Process> job;

 private:
  Process other_{launch(hosts, kHosts, lasting_program())};
  std::set<pid_t> others_;
};

}  // namespace

TEST_CASE("after SIGKILL of the launcher, of an ssh or of an agent, nothing is left, and others run on") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (int round = 0; round < rounds(); ++round) {
    for (const std::string victim : {"launcher", "ssh", "agent"}) {
      TwoJobs jobs;
      CAPTURE(victim);
      if (victim == "launcher") {
        jobs.job->signal(SIGKILL);
      } else if (victim == "ssh") {
        kill(children_of(jobs.job->pid(), "ssh").at(1), SIGKILL);
      } else {
        kill(jobs.agent(round % kHosts), SIGKILL);
      }
      jobs.check_only_the_other_is_left();
      const Ended ended = jobs.job->end();
      CHECK_MESSAGE(ended.exit_code != 0, ended.err);
      CHECK_MESSAGE(ended.exit_code != -1, ended.err);
    }
  }
}

// A login, the plans, the look around and the start take less than a second here; each time another moment of
// it is hit.
TEST_CASE("whoever is killed while the hosts are still called and asked, nothing is left") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts)}};
  Process other(launch(hosts, 1, lasting_program()));
  REQUIRE_MESSAGE(other.wait_for_out("up"), other.err());
  const std::vector<SshHosts::Running> others = hosts.processes(0);
  const auto idle = [&](int host) { return hosts.processes(host).size() == (host == 0 ? others.size() : 0); };
  const int moments = 2 * rounds();
  for (int moment = 0; moment < moments; ++moment) {
    for (const std::string victim : {"launcher", "ssh", "agent"}) {
      CAPTURE(victim);
      CAPTURE(moment);
      Process job(launch(hosts, kHosts, lasting_program()));
      std::this_thread::sleep_for(std::chrono::milliseconds(900 * (moment + 1) / moments));
      if (victim == "launcher") job.signal(SIGKILL);
      if (victim == "ssh")
        for (const pid_t pid : children_of(job.pid(), "ssh")) kill(pid, SIGKILL);
      if (const pid_t agent = agent_on(hosts, 1); victim == "agent" && agent != 0) kill(agent, SIGKILL);
      if (victim != "launcher" && !eventually([&] { return !is_alive(job.pid()); }, Process::Duration(3000)))
        job.signal(SIGTERM);  // its victim was not there yet
      const Ended ended = job.end(kLimit);
      CHECK_MESSAGE(ended.exit_code > 0, ended.err);
      for (int i = 0; i < kHosts; ++i)
        CHECK_MESSAGE(eventually([&] { return idle(i); }, kLimit), running_on(hosts, i));
    }
  }
  for (const SshHosts::Running& process : others) CHECK(is_alive(process.pid));
}

TEST_CASE("a cable that is cut while the hosts are called and asked is no launch that never ends") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const int moments = rounds();
  for (int moment = 0; moment < moments; ++moment) {
    CAPTURE(moment);
    const SshHosts hosts{{.hosts = alike(kHosts)}};
    Process job(launch(hosts, kHosts, lasting_program()));
    std::this_thread::sleep_for(std::chrono::milliseconds(600 * (moment + 1) / moments));
    hosts.cut(1);
    const Ended ended = job.end(kLimit + Process::Duration(30000));
    CHECK_MESSAGE(ended.exit_code > 0, ended.err);
    CHECK_MESSAGE(contains(ended.err, "node1: "), ended.err);
    for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
  }
}

// An agent greets 3 ms after it was called, and then looks at what the job needs; each launch is met in
// another moment of it.
TEST_CASE("a cable that is cut while an agent looks at its files and says nothing is noticed by ssh") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts)}};
  std::vector<std::unique_ptr<Process>> jobs;
  std::set<pid_t> agents;
  for (int moment = 0; moment < 6; ++moment) {
    jobs.push_back(std::make_unique<Process>(launch(hosts, kHosts, lasting_program())));
    pid_t agent = 0;
    while ((agent = agent_on(hosts, 1, agents)) == 0 && is_alive(jobs.back()->pid())) {
    }
    REQUIRE_MESSAGE(agent != 0, jobs.back()->err());
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * moment));
    kill(agent, SIGSTOP);
    agents.insert(agent);
  }
  hosts.cut(1);
  // The launcher soon reports that node1 does not answer, and its last known work once ssh gives up. An agent
  // that was stopped before it greeted is unknown to the launcher; on a busy machine one agent is done with
  // its files, and the others wait for it to join, or a call comes when the cable is cut already.
  int noticed = 0;
  for (const auto& job : jobs) {
    const bool notices = job->wait_for_err("node1: no answer", Process::Duration(20000));
    const bool elsewhere =
        contains(job->err(), "joined 2 of 3") || has_line(job->err(), "node1: ssh: connect to ");
    CHECK_MESSAGE((notices || elsewhere), job->err());
    noticed += notices;
  }
  CHECK(noticed > 0);
  for (const auto& job : jobs) {
    const Ended ended = job->end(kLimit + Process::Duration(30000));
    if (contains(ended.err, "no answer any more")) {
      CHECK_MESSAGE(has_line(ended.err, "node1: the line to it broke while it "), ended.err);
      CHECK_MESSAGE(!contains(ended.err, "sshd listens"), ended.err);
    }
    CHECK_MESSAGE(ended.exit_code == 69, ended.err);
    CHECK_MESSAGE(contains(ended.err, "node1: "), ended.err);
    CHECK_FALSE(contains(ended.err, "signal 127"));  // ssh's 255
  }
  for (const pid_t agent : agents) kill(agent, SIGKILL);
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
}

TEST_CASE("after a cable is cut, nothing of the job is left on either side of it") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (int round = 0; round < rounds(); ++round) {
    const SshHosts hosts{{.hosts = alike(kHosts)}};
    Process job(launch(hosts, kHosts, lasting_program()));
    REQUIRE_MESSAGE(all_up(job), job.err());
    hosts.cut((round + 1) % kHosts);
    for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
    const Ended ended = job.end();
    CHECK_MESSAGE(ended.exit_code != 0, ended.err);
    CHECK_MESSAGE(contains(ended.err, SshHosts::name((round + 1) % kHosts)), ended.err);
  }
}

TEST_CASE("Ctrl-C ends the job on all hosts in order, and twice at once") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts)}};
  const auto worker = [&](const std::string& on_signal) {
    return launch(hosts, kHosts,
                  {"--nproc_per_node", "1", "--", "sh", "-c",
                   "trap '" + on_signal + "' INT TERM; echo up; while :; do sleep 0.1; done"});
  };
  Process polite(worker("echo saved; exit 0"));
  REQUIRE_MESSAGE(all_up(polite), polite.err());
  polite.signal(SIGINT);
  const Ended once = polite.end();
  CHECK_MESSAGE(once.exit_code == 130, once.err);
  CHECK(contains(once.out, "saved"));
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));

  Process deaf(worker(""));
  REQUIRE_MESSAGE(all_up(deaf), deaf.err());
  deaf.signal(SIGINT);
  REQUIRE(deaf.wait_for_err("stopping"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // two signals in a row are one
  deaf.signal(SIGINT);
  const Ended twice = deaf.end(Process::Duration(15000));  // the grace alone is 30 s
  CHECK_MESSAGE(twice.exit_code == 130, twice.err);
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
}

}  // namespace dtrun::ends_test
