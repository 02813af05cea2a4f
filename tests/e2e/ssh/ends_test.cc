// However a job that was launched over ssh ends, nothing of it is left on any host, and another job of the
// same user on the same hosts runs on.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <thread>

#include "proto/base/descriptor.h"
#include "tests/e2e/ssh/launch.h"
#include "tests/e2e/training.h"
#include "tests/support/clock.h"

namespace dtrun::ends_test {

using namespace dtrun::test;

namespace {

constexpr int kHosts = 3;
// An agent that hears nothing ends its part of the job; here it does within 8 s, not a minute.
constexpr auto kLimit = Process::Duration(30000);

// ssh notices sooner that a line is dead.
const std::vector<std::string> kAlert{
    "--ssh", "ssh -o ConnectTimeout=5 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"};

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
pid_t agent_on(const SshHosts& hosts, int host) {
  for (const SshHosts::Running& process : hosts.processes(host))
    if (contains(process.command, "dtrun agent")) return process.pid;
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

TEST_CASE("whoever is killed while the hosts are still called and asked, nothing is left") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts)}};
  Process other(launch(hosts, 1, lasting_program()));
  REQUIRE_MESSAGE(other.wait_for_out("up"), other.err());
  const std::vector<SshHosts::Running> others = hosts.processes(0);
  const auto idle = [&](int host) { return hosts.processes(host).size() == (host == 0 ? others.size() : 0); };
  for (int round = 0; round < rounds(); ++round) {
    for (const bool asked : {false, true}) {
      for (const std::string victim : {"launcher", "ssh", "agent"}) {
        CAPTURE(victim);
        CAPTURE(asked);
        Process job(launch(hosts, kHosts, lasting_program()));
        std::vector<pid_t> calls;
        const auto all_are_called = [&] {
          calls = children_of(job.pid(), "ssh");
          return calls.size() == kHosts && (!asked || agent_on(hosts, 1) != 0);
        };
        REQUIRE_MESSAGE(eventually(all_are_called), job.err());
        std::this_thread::sleep_for(std::chrono::milliseconds(600 * round / rounds()));
        std::vector<pid_t> victims = victim == "ssh" ? calls : std::vector{job.pid()};
        if (victim == "agent") REQUIRE(eventually([&] { return (victims[0] = agent_on(hosts, 1)) != 0; }));
        for (const pid_t pid : victims) kill(pid, SIGKILL);
        const Ended ended = job.end(kLimit);
        CHECK_MESSAGE(ended.exit_code > 0, ended.err);
        for (const pid_t call : calls) CHECK(eventually([&] { return !is_alive(call); }, kLimit));
        for (int i = 0; i < kHosts; ++i)
          CHECK_MESSAGE(eventually([&] { return idle(i); }, kLimit), running_on(hosts, i));
      }
    }
  }
  for (const SshHosts::Running& process : others) CHECK(is_alive(process.pid));
}

TEST_CASE("a cable that is cut while the hosts are called and asked is no launch that never ends") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (int round = 0; round < rounds(); ++round) {
    CAPTURE(round);
    const SshHosts hosts{{.hosts = alike(kHosts, impatient())}};
    Process job(launch(hosts, kHosts, joined(kAlert, lasting_program())), {impatient()});
    REQUIRE_MESSAGE(eventually([&] { return agent_on(hosts, 1) != 0; }), job.err());
    std::this_thread::sleep_for(std::chrono::milliseconds(600 * round / rounds()));
    hosts.cut(1);
    const Ended ended = job.end(kLimit + Process::Duration(30000));
    CHECK_MESSAGE(ended.exit_code > 0, ended.err);
    CHECK_MESSAGE(contains(ended.err, "node1: "), ended.err);
    for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
  }
}

TEST_CASE("a cable that is cut while an agent looks at its files and says nothing is noticed by ssh") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts, impatient())}};
  const std::string config = hosts.shared() / "job.json";
  write_text(config, read_text(kConfig));
  // An agent looks at the teacher's config, which node1's file system does not open.
  for (int i = 0; i < kHosts; ++i)
    output_of(hosts.at_login(
        {"ssh", SshHosts::name(i),
         "mkdir teacher && touch teacher/model.safetensors && cp " + config + " teacher/config.json"}));
  Descriptor held(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY));
  const std::string teacher = hosts.seen_from_here(1, "/home/ada/teacher/config.json");
  REQUIRE(fanotify_mark(held.get(), FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, teacher.c_str()) == 0);
  // ssh gives up later than the launcher's word that a host does not answer (8 s), sooner than the launcher.
  Process job(
      launch(hosts, kHosts,
             joined(kAlert, {"--nproc_per_node", "1", config, "train.distill_from=/home/ada/teacher"})));
  pollfd opened{.fd = held.get(), .events = POLLIN, .revents = 0};
  REQUIRE_MESSAGE(eventually([&] { return poll(&opened, 1, 0) == 1; }), job.err());
  hosts.cut(1);
  // The launcher soon reports that node1 does not answer, and its last known work once ssh gives up.
  CHECK_MESSAGE(job.wait_for_err("node1: no answer"), job.err());
  const Ended ended = job.end(kLimit + Process::Duration(30000));
  CHECK_MESSAGE(has_line(ended.err, "node1: the line to it broke while it "), ended.err);
  CHECK_MESSAGE(!contains(ended.err, "sshd listens"), ended.err);
  CHECK_MESSAGE(ended.exit_code == 69, ended.err);
  CHECK_FALSE(contains(ended.err, "signal 127"));  // ssh's 255
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
}

TEST_CASE("after a cable is cut, nothing of the job is left on either side of it") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  for (int round = 0; round < rounds(); ++round) {
    const SshHosts hosts{{.hosts = alike(kHosts, impatient())}};
    Process job(launch(hosts, kHosts, lasting_program()), {impatient()});
    REQUIRE_MESSAGE(all_up(job), job.err());
    hosts.cut((round + 1) % kHosts);
    for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i, kLimit), running_on(hosts, i));
    const Ended ended = job.end();
    CHECK_MESSAGE(ended.exit_code != 0, ended.err);
    CHECK_MESSAGE(contains(ended.err, SshHosts::name((round + 1) % kHosts)), ended.err);
  }
}

TEST_CASE("a host is lost while nobody reads the launcher's output: the job ends") {
  if (const std::string why = why_no_ssh_hosts(); !why.empty()) return skip(why);
  const SshHosts hosts{{.hosts = alike(kHosts)}};
  const Folder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const Descriptor reader(open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC));
  Process job({"sh", "-c",
               "exec " + shell_text(launch(hosts, kHosts, {"--nproc_per_node", "1", "--", "yes"})) + " >" +
                   (folder / "pipe").string() + " 2>&1"});
  const auto full = [&] {
    pollfd room{reader.get(), POLLOUT, 0};
    return poll(&room, 1, 0) == 0;
  };
  REQUIRE(eventually(full, kLimit));
  kill(agent_on(hosts, 1), SIGKILL);
  CHECK(job.end(kLimit).exit_code == 69);
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
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
  std::this_thread::sleep_for(soon(std::chrono::milliseconds(500)));  // two in 250 ms are one
  deaf.signal(SIGINT);
  const Ended twice = deaf.end(Process::Duration(15000));  // the grace alone is 30 s
  CHECK_MESSAGE(twice.exit_code == 130, twice.err);
  for (int i = 0; i < kHosts; ++i) CHECK_MESSAGE(is_idle(hosts, i), running_on(hosts, i));
}

}  // namespace dtrun::ends_test
