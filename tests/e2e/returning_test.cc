// A node that was out of touch until the others had given it up, by its cable or because it stood still, and
// is back: it is taken in again with the worker that it kept, for any --nnodes and any host of the
// coordinator, and the model has the bytes of an undisturbed run.
#include <doctest/doctest.h>
#include <signal.h>

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

const std::vector<std::string> kJob{"train.max_steps=500", "train.save_steps=1000000"};
constexpr long kBeginning = 20;  // steps; far from the job's end

enum class Absence { kCut, kFrozen };

struct Form {
  std::string nnodes;
  int hosts = 2;
  bool three_leaders = false;
};

// Two seconds of silence are enough to be given up.
// A busy machine may be without a leader for long.
const std::string kSoon =
    "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=20,read_timeout=300";

// Enough for a busy machine.
constexpr std::chrono::milliseconds kPatience{90000};

// Holds the remaining workers, so that steps are left for the node that comes back: workers exchange
// gradients in each.
class Held {
 public:
  explicit Held(const std::vector<pid_t>& pids) : pids_(pids) {
    for (const pid_t pid : pids_) kill(pid, SIGSTOP);
  }
  ~Held() {
    for (const pid_t pid : pids_) kill(pid, SIGCONT);
  }
  Held(const Held&) = delete;

 private:
  const std::vector<pid_t> pids_;
};

class Group {
 public:
  explicit Group(const Form& form) : hosts(form.hosts), form_(form) {
    std::string list = Hosts::address(0);
    for (int host = 1; form.three_leaders && host < form.hosts; ++host) list += "," + Hosts::address(host);
    for (int host = 0; host < form.hosts; ++host) {
      const std::vector<std::string> options{"--rdzv_endpoint",  list + ":29400",
                                             "--rdzv_id",        "back",
                                             "--nproc_per_node", "1",
                                             "--lanes",          "1",
                                             "--nnodes",         form.nnodes,
                                             "--rdzv_conf",      kSoon,
                                             "--progress",       "plain"};
      agents_.push_back(
          std::make_unique<Process>(hosts.on(host, training(options, hosts.directory() / "out", kJob))));
    }
  }
  Process& agent(int host) { return *agents_[static_cast<std::size_t>(host)]; }
  int count() const { return form_.hosts; }
  int last() const { return form_.hosts - 1; }

  bool trains(long lines) const {
    return eventually([&] {
      for (int host = 0; host < count(); ++host)
        if (metrics_lines(hosts.seen_from_here(host, "out")) >= lines) return true;
      return false;
    });
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
  // The workers of all agents but the last one.
  std::vector<pid_t> workers_of_others() const {
    std::vector<pid_t> pids;
    for (int host = 0; host < last(); ++host)
      for (const pid_t pid : children_of(agents_[static_cast<std::size_t>(host)]->pid(), "dtrun-worker"))
        pids.push_back(pid);
    return pids;
  }
  std::string any_model() const {
    for (int host = 0; host < count(); ++host)
      if (std::filesystem::exists(hosts.seen_from_here(host, "out/model.safetensors")))
        return model(hosts.seen_from_here(host, "out"));
    return "";
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
    const Held others(group.workers_of_others());
    comes(group, absence);
    CHECK_MESSAGE(group.agent(group.last()).wait_for_err("gets ready to take part", kPatience), group.said());
  }
  CHECK_MESSAGE(group.agent(0).wait_for_err(gone + " is back", kPatience), group.said());
  CHECK_MESSAGE(group.agent(0).wait_for_err(with_all, kPatience), group.said());
  for (int host = 0; host < group.count(); ++host) {
    const Ended ended = group.agent(host).end();
    CAPTURE(host);
    CHECK_MESSAGE(ended.exit_code == 0, group.said());
  }
  if (waits) CHECK_MESSAGE(!contains(group.agent(0).err(), "on 1 node\n"), group.said());
  CHECK_MESSAGE(!contains(group.said(), "resumed from step"), group.said());
  CHECK(group.any_model() == quiet_model(500));
}

}  // namespace

TEST_CASE("a node whose cable was cut until it was given up is taken in again") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  SUBCASE("of a range") { play({.nnodes = "1:2"}, Absence::kCut); }
  SUBCASE("where both are needed: the other one waits, and says so") { play({.nnodes = "2"}, Absence::kCut); }
  SUBCASE("with three hosts of the coordinator") {
    play({.nnodes = "2:3", .hosts = 3, .three_leaders = true}, Absence::kCut);
  }
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

}  // namespace dtrun::returning_test
