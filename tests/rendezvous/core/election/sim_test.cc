// Leadership on a virtual clock: with partitions, one-way cuts, delay, loss, hosts that stand still for
// longer than a vote binds, crashes and restarts, there is never a second leader, no later one forgets what
// the one before told, and a majority that is whole has one. DTRUN_SEED=N runs one seed of each;
// DTRUN_SCHEDULES=N another number of them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/rendezvous/core/election/election_sim.h"

namespace dtrun::rendezvous::election::sim_test {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Sums over all schedules of a case: they show that the case's events happened at all.
struct Sum {
  std::int64_t schedules = 0, leads = 0, lapsed = 0, written = 0, ended = 0, refused = 0;
  std::int64_t crashes = 0, pauses = 0, cuts = 0, broken = 0, beside = 0, events = 0, lies = 0, again = 0;
  Millis latest = 0;
  Term highest = 0;
  std::string first_broken;

  void add(const SimSettings& settings, const SimResult& result) {
    ++schedules;
    leads += result.leads;
    lapsed += result.lapsed;
    written += result.written;
    ended += result.ended;
    refused += result.refused;
    crashes += result.crashes;
    pauses += result.pauses;
    cuts += result.cuts;
    beside += result.alone_beside;
    lies += result.lies;
    again += result.again;
    highest = std::max(highest, result.highest);
    events += result.events;
    latest = std::max(latest, result.until_lead);
    broken += !result.broken.empty();
    if (first_broken.empty() && !result.broken.empty())
      first_broken = "seed " + std::to_string(settings.seed) + ", " + std::to_string(settings.hosts) +
                     " hosts: " + result.broken;
  }
};

template <typename Change>
Sum run(std::uint64_t count, Change change) {
  Sum sum;
  const std::uint64_t only = number_from("DTRUN_SEED", 0);
  for (std::uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : count); ++seed) {
    SimSettings settings;
    settings.seed = seed;
    settings.hosts = seed % 4 == 0 ? 5 : seed % 7 == 0 ? 4 : 3;
    change(settings);
    sum.add(settings, simulate(settings));
  }
  MESSAGE(sum.schedules << " schedules, " << sum.events << " events: " << sum.leads << " leads, "
                        << sum.written << " versions, " << sum.ended << " ends, " << sum.refused
                        << " orders refused, " << sum.crashes << " crashes, " << sum.pauses << " pauses, "
                        << sum.cuts << " cuts, " << sum.again << " leaders again, " << sum.lies
                        << " lies, the highest term " << sum.highest << "; a leader at the latest "
                        << sum.latest << " ms after the trouble; broken: " << sum.broken << " "
                        << sum.first_broken);
  return sum;
}

std::uint64_t schedules() { return number_from("DTRUN_SCHEDULES", 100'000); }

}  // namespace

TEST_CASE("never two leaders, nothing told is forgotten, and a majority always has one") {
  const Sum sum = run(schedules(), [](SimSettings&) {});
  CHECK(sum.first_broken == "");
  CHECK(sum.leads > 2 * sum.schedules);
  for (const std::int64_t happened : {sum.written, sum.ended, sum.crashes, sum.pauses, sum.cuts})
    CHECK(happened > sum.schedules / 2);
  CHECK(sum.refused > 0);
}

TEST_CASE("also where more hosts lose their memory than may, no two lead at the same time") {
  const Sum sum = run(schedules() / 10, [](SimSettings& settings) {
    settings.keeps_record = false;
    settings.faults = 16;
  });
  CHECK(sum.first_broken == "");
  CHECK(sum.crashes > 2 * sum.schedules);
}

TEST_CASE("a member that lies about terms changes neither, and the numbers last") {
  const Sum sum = run(schedules() / 10, [](SimSettings& settings) { settings.lies = true; });
  CHECK(sum.first_broken == "");
  CHECK(sum.lies > 2 * sum.schedules);
  CHECK(sum.again > sum.schedules / 2);  // the others had no reason to lead
  CHECK(sum.highest > kFurthest);
  CHECK(sum.highest < 1000 * kFurthest);
}

TEST_CASE("an undisturbed leader stays, however far the clocks are apart") {
  const Sum sum = run(schedules() / 100, [](SimSettings& settings) { settings.faults = 0; });
  CHECK(sum.first_broken == "");
  CHECK(sum.leads < 2 * sum.schedules);
}

TEST_CASE("where one of two is enough, both go on in a cut network, and one after it") {
  const Sum sum = run(schedules() / 100, [](SimSettings& settings) {
    settings.hosts = 2;
    settings.alone = true;
  });
  CHECK(sum.first_broken == "");
  CHECK(sum.beside > 0);
}

// The parts of the fencing, taken away one by one: the checks above must see it.
TEST_CASE("without the fencing this would be seen") {
  const auto seen = [](std::function<void(Settings&)> tamper, bool keeps_record = true) {
    const Sum sum = run(3000, [&](SimSettings& settings) {
      settings.tamper = tamper;
      settings.keeps_record = keeps_record;
    });
    return sum.first_broken;
  };
  SUBCASE("a majority is not asked for") {
    CHECK(seen([](Settings& one) { one.needed = one.hosts / 2; }) != "");
  }
  SUBCASE("a leader counts votes for longer than they bind") {
    CHECK(seen([](Settings& one) { one.held = 10 * one.lease; }) != "");
  }
  SUBCASE("a voter that was started anew votes at once") {
    CHECK(seen([](Settings& one) { one.abstain = 0; }, false) != "");
  }
}

}  // namespace dtrun::rendezvous::election::sim_test
