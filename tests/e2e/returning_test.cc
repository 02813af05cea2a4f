// A node that was out of touch until the others had given it up, by its cable or because it stood still, and
// is back: it is taken in again with the worker that it kept, for any --nnodes and any host of the
// coordinator, and the model has the bytes of an undisturbed run.
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

// So long a silence is enough to be given up. A busy machine may be without a leader for long.
std::string rules() { return lost_after_two_seconds() + ",last_call_timeout=20,read_timeout=300"; }

// The test begins to wait when the node has gone, and a leader that is lost is missed for a while.
constexpr std::chrono::milliseconds kPatience{90000};

class Group {
 public:
  explicit Group(const Form& form) : hosts(form.hosts), form_(form) {
    const std::string conf = rules();
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
          std::make_unique<Process>(hosts.on(host, endless_training(options, hosts.directory() / "out"))));
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
  bool gives_up(const std::string& host) {
    return eventually(
        [&] {
          return contains(agent(0).err(), host + " was silent for 2 s") ||
                 contains(agent(0).err(), host + ", which had the coordinator, is lost");
        },
        kPatience);
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
