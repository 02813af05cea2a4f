// A node that was out of touch until the others had given it up, by its cable or because it stood still, and
// is back: it is taken in again with the worker that it kept, for any --nnodes and any host of the
// coordinator, and the model has the bytes of an undisturbed run. A node of a range that is cut off waits for
// longer than one of a fixed number, with its worker at rest, and hears or finds out that the job has ended.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::returning_test {

using namespace dtrun::test;

namespace {

constexpr long kBeginning = 20;  // steps

enum class Absence { kCut, kFrozen };

struct Form {
  std::string nnodes;
  int hosts = 2;
  bool three_leaders = false;
};

// So long a silence is enough to be given up. Where all are needed each waits for the others, and a busy
// machine may be without a leader for long.
std::string rules(const Form& form) {
  const bool all = form.nnodes == std::to_string(form.hosts);
  return lost_after_two_seconds() + ",last_call_timeout=20" + (all ? ",read_timeout=300" : "");
}

// So long an agent waits for a coordinator that cannot come back.
std::string gives_up_in_a_second() {
  return "DTRUN_TEST_TIMES=without_coordinator=" + std::to_string(soon(std::chrono::seconds(1)).count());
}

// The test begins to wait when the node has gone, and a leader that is lost is missed for a while.
constexpr std::chrono::milliseconds kPatience{90000};

class Group {
 public:
  explicit Group(const Form& form) : hosts(form.hosts), form_(form) {
    const std::string conf = rules(form);
    std::string list = Hosts::address(0);
    for (int host = 1; form.three_leaders && host < form.hosts; ++host) list += "," + Hosts::address(host);
    for (int host = 0; host < form.hosts; ++host) {
      const std::vector<std::string> options{"--rdzv_endpoint",  list + ":29400",
                                             "--rdzv_id",        "back",
                                             "--nproc_per_node", "1",
                                             "--lanes",          "1",
                                             "--nnodes",         form.nnodes,
                                             "--rdzv_conf",      conf,
                                             "--progress",       "plain"};
      agents_.push_back(
          std::make_unique<Process>(hosts.on(host, endless_training(options, hosts.directory() / "out")),
                                    std::vector{gives_up_in_a_second()}));
    }
  }
  Process& agent(int host) { return *agents_[static_cast<std::size_t>(host)]; }
  int count() const { return form_.hosts; }
  int last() const { return form_.hosts - 1; }

  std::vector<std::filesystem::path> outputs() const {
    std::vector<std::filesystem::path> all;
    for (int host = 0; host < count(); ++host) all.push_back(hosts.seen_from_here(host, "out"));
    return all;
  }
  long steps() const {
    long most = 0;
    for (const auto& output : outputs()) most = std::max(most, steps_done(output));
    return most;
  }
  bool trains(long steps) const {
    return eventually([&] { return this->steps() >= steps; });
  }
  void end_as_calm() const {
    std::vector<Process*> agents;
    for (const auto& agent : agents_) agents.push_back(agent.get());
    dtrun::test::end_as_calm(agents, outputs());
  }
  std::string said() const {
    std::string all;
    for (int host = 0; host < count(); ++host)
      all += Hosts::name(host) + ":\n" + agents_[static_cast<std::size_t>(host)]->err();
    return all;
  }
  // With three hosts of the coordinator it may have been the leader.
  bool gives_up(const std::string& host, int here = 0) {
    return eventually(
        [&] {
          return contains(agent(here).err(), host + " was silent for 2 s") ||
                 contains(agent(here).err(), host + ", which had the coordinator, is lost");
        },
        kPatience);
  }
  int leader() {
    for (int host = 0; host < count(); ++host)
      if (contains(agent(host).err(), "watch: http")) return host;
    return -1;
  }

  const Hosts hosts;

 private:
  const Form form_;
  std::vector<std::unique_ptr<Process>> agents_;
};

void goes(Group& group, Absence absence) {
  if (absence == Absence::kCut) return group.hosts.cut(group.last());
  for (const pid_t worker : children_of(group.agent(group.last()).pid(), "dtrun-worker"))
    kill(worker, SIGSTOP);
  group.agent(group.last()).signal(SIGSTOP);
}

void comes(Group& group, Absence absence) {
  if (absence == Absence::kCut) return group.hosts.mend(group.last());
  group.agent(group.last()).signal(SIGCONT);
  for (const pid_t worker : children_of(group.agent(group.last()).pid(), "dtrun-worker"))
    kill(worker, SIGCONT);
}

void play(const Form& form, Absence absence) {
  Group group(form);
  REQUIRE_MESSAGE(group.trains(kBeginning), group.said());
  const std::string gone = Hosts::name(group.last());
  goes(group, absence);
  REQUIRE_MESSAGE(group.gives_up(gone), group.said());
  const bool waits = form.nnodes == std::to_string(form.hosts);
  const std::string with_all =
      "going on with " + std::to_string(form.hosts) + " workers on " + std::to_string(form.hosts) + " nodes";
  if (waits) {
    CHECK_MESSAGE(group.agent(0).wait_for_err("missing: " + gone + " (lost", kPatience), group.said());
    // Longer than a line of progress is held back: none must come of a job that waits.
    const std::string before = group.agent(0).err();
    std::this_thread::sleep_for(std::chrono::seconds(6));
    const std::string since = group.agent(0).err().substr(before.size());
    CHECK_MESSAGE(!contains(since, "samples/s"), since);
    comes(group, absence);
  } else {
    REQUIRE_MESSAGE(group.agent(0).wait_for_err("going on with", kPatience), group.said());
    comes(group, absence);
    CHECK_MESSAGE(group.agent(group.last()).wait_for_err("gets ready to take part", kPatience), group.said());
  }
  CHECK_MESSAGE(group.agent(0).wait_for_err(gone + " is back", kPatience), group.said());
  CHECK_MESSAGE(group.agent(0).wait_for_err(with_all, kPatience), group.said());
  CHECK_MESSAGE(group.trains(group.steps() + 10), group.said());
  group.end_as_calm();
  if (waits) CHECK_MESSAGE(!contains(group.agent(0).err(), "on 1 node\n"), group.said());
  CHECK_MESSAGE(!contains(group.said(), "resumed from step"), group.said());
}

}  // namespace

TEST_CASE("a node whose cable was cut until it was given up is taken in again") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  play({.nnodes = "1:2"}, Absence::kCut);
}

TEST_CASE("a node of a range waits for its coordinator for longer than any that it knows to be gone") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Group group({.nnodes = "1:2"});
  REQUIRE_MESSAGE(group.trains(kBeginning), group.said());
  Process& cut = group.agent(1);
  const pid_t worker = only_worker(cut);
  group.hosts.cut(1);
  CHECK_MESSAGE(cut.wait_for_err("its workers wait with their state", kPatience), group.said());
  // The line comes 5 s after the loss.
  CHECK_MESSAGE(cut.wait_for_err("; trying for another 59", kPatience), group.said());
  const long rests_at = steps_done(group.outputs()[1]);
  CHECK(is_alive(worker));
  SUBCASE("it is back: its worker has gone on from what it kept") {
    group.hosts.mend(1);
    CHECK_MESSAGE(group.agent(0).wait_for_err("going on with 2 workers on 2 nodes", kPatience), group.said());
    CHECK(only_worker(cut) == worker);
    CHECK(group.trains(std::max(rests_at, group.steps()) + 10));
    group.end_as_calm();
  }
  SUBCASE("the job has ended: no coordinator is there any more") {
    group.agent(0).signal(SIGTERM);
    CHECK_MESSAGE(group.agent(0).wait() == 128 + SIGTERM, group.said());
    CHECK(is_alive(worker));
    CHECK(steps_done(group.outputs()[1]) == rests_at);
    group.hosts.mend(1);
    const Ended ended = cut.end();
    CHECK_MESSAGE(ended.exit_code == 69, ended.err);
    CHECK_MESSAGE(contains(ended.err, "is gone: nothing listens there any more. Either the job has ended"),
                  ended.err);
    CHECK_MESSAGE(!contains(ended.err, "Start the job again on the nodes that are left"), ended.err);
    CHECK_FALSE(is_alive(worker));
  }
}

TEST_CASE("the host of the coordinator is cut off: another one leads, and it comes back as a worker") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Group group({.nnodes = "2:3", .hosts = 3, .three_leaders = true});
  REQUIRE_MESSAGE(group.trains(kBeginning), group.said());
  const int gone = group.leader(), other = (gone + 1) % 3;
  REQUIRE_MESSAGE(gone >= 0, group.said());
  const pid_t worker = only_worker(group.agent(gone));
  group.hosts.cut(gone);
  REQUIRE_MESSAGE(group.gives_up(Hosts::name(gone), other), group.said());
  CHECK_MESSAGE(group.agent(gone).wait_for_err("others may go on without this node", kPatience),
                group.said());
  CHECK_MESSAGE(group.agent(gone).wait_for_err("; trying for another 59", kPatience), group.said());
  SUBCASE("and they go on") {
    group.hosts.mend(gone);
    CHECK_MESSAGE(group.agent(other).wait_for_err("going on with 3 workers on 3 nodes", kPatience),
                  group.said());
    CHECK(only_worker(group.agent(gone)) == worker);
    CHECK_MESSAGE(group.trains(group.steps() + 10), group.said());
    group.end_as_calm();
  }
  SUBCASE("and they end meanwhile") {
    for (const int host : {other, (gone + 2) % 3}) group.agent(host).signal(SIGTERM);
    for (const int host : {other, (gone + 2) % 3}) CHECK(group.agent(host).wait() == 128 + SIGTERM);
    group.hosts.mend(gone);
    const Ended ended = group.agent(gone).end();
    CHECK_MESSAGE(ended.exit_code == 69, ended.err);
    CHECK_MESSAGE(contains(ended.err, "is gone: nothing listens there any more"), ended.err);
  }
}

TEST_SUITE("long") {
  TEST_CASE("the same where both are needed, which says so, and of three hosts of the coordinator") {
    if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
    SUBCASE("both") { play({.nnodes = "2"}, Absence::kCut); }
    SUBCASE("three") { play({.nnodes = "2:3", .hosts = 3, .three_leaders = true}, Absence::kCut); }
  }

  TEST_CASE("a node that stood still until it was given up is taken in again") {
    if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
    SUBCASE("of a range") { play({.nnodes = "1:2"}, Absence::kFrozen); }
    SUBCASE("where both are needed: the other one waits, and says so") {
      play({.nnodes = "2"}, Absence::kFrozen);
    }
    SUBCASE("with three hosts of the coordinator") {
      play({.nnodes = "2:3", .hosts = 3, .three_leaders = true}, Absence::kFrozen);
    }
  }
}

}  // namespace dtrun::returning_test
