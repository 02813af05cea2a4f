// Logins in a window: each rule by itself, then against an sshd that drops connections as OpenSSH's does.
#include "cmd/hosts/fan_out.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace dtrun::cmd::fan_out_test {
namespace {

// sshd's MaxStartups begin:rate:full (sshd.c, should_drop_connection): it drops new connections at random
// while `unfinished` others have not logged in.
class Sshd {
 public:
  explicit Sshd(unsigned seed) : random_(seed) {}

  bool drops(int unfinished) {
    constexpr int kBegin = 10, kRate = 30, kFull = 100;
    if (unfinished < kBegin) return false;
    if (unfinished >= kFull) return true;
    const int percent = kRate + (100 - kRate) * (unfinished - kBegin) / (kFull - kBegin);
    return below(100) < percent;
  }
  Millis login_time() { return 150 + below(700); }
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

 private:
  std::mt19937 random_;
};

struct Outcome {
  int logged_in = 0;
  int given_up = 0;
  int refused = 0;
  int most_attempts = 0;
  Millis ended_at = 0;
};

// All hosts behind one sshd, until the fan-out is over. Checks what must always hold.
Outcome run(int hosts, unsigned seed) {
  FanOut fan_out(hosts);
  Sshd sshd(seed);
  Outcome outcome;
  std::multimap<Millis, int> logins;  // by when each ends
  std::vector<int> attempts(static_cast<std::size_t>(hosts)), over(static_cast<std::size_t>(hosts));
  Millis now = 0;
  const auto dial = [&] {
    for (const int host : fan_out.dial(now)) {
      const auto i = static_cast<std::size_t>(host);
      REQUIRE_FALSE(over[i]);
      outcome.most_attempts = std::max(outcome.most_attempts, ++attempts[i]);
      if (!sshd.drops(static_cast<int>(logins.size()))) {
        logins.emplace(now + sshd.login_time(), host);
        continue;
      }
      ++outcome.refused;
      over[i] = !fan_out.refused(host, now);
      outcome.given_up += over[i];
    }
    REQUIRE(fan_out.under_way() == static_cast<int>(logins.size()));
  };
  while (!fan_out.over()) {
    dial();
    const auto deadline = fan_out.deadline();
    if (!logins.empty() && (!deadline || logins.begin()->first <= *deadline)) {
      now = logins.begin()->first;
      fan_out.logged_in(logins.begin()->second);
      over[static_cast<std::size_t>(logins.begin()->second)] = 1;
      logins.erase(logins.begin());
      ++outcome.logged_in;
    } else {
      REQUIRE((deadline || fan_out.over()));  // else it would wait for ever
      if (deadline) now = std::max(now, *deadline);
    }
  }
  REQUIRE(fan_out.dial(now + 1'000'000).empty());
  REQUIRE(std::accumulate(over.begin(), over.end(), 0) == hosts);
  outcome.ended_at = now;
  return outcome;
}

}  // namespace

TEST_CASE("as many are dialled as the window holds, lowest index first, each once") {
  FanOut fan_out(100);
  auto first = fan_out.dial(0);
  REQUIRE(first.size() == kFirstLoginWindow);
  CHECK(first.front() == 0);
  CHECK(first.back() == 63);
  CHECK(fan_out.dial(0).empty());
  CHECK_FALSE(fan_out.deadline().has_value());
  fan_out.failed(7);
  CHECK(fan_out.dial(0) == std::vector<int>{64});
  fan_out.logged_in(8);
  CHECK(fan_out.dial(0) == std::vector<int>{65, 66});  // the window grew, too
}

TEST_CASE("of logins that began together, one refusal makes the window smaller, never below its least") {
  FanOut fan_out(200);
  const auto first = fan_out.dial(0);
  for (const int host : first) CHECK(fan_out.refused(host, 10));
  CHECK(fan_out.window() == 32);
  Millis now = 10;
  for (const int expected : {16, 8, 4, 4, 4}) {
    now += 10'000;
    const auto next = fan_out.dial(now);
    REQUIRE_FALSE(next.empty());
    for (const int host : next) CHECK(fan_out.refused(host, now));
    CHECK(fan_out.window() == expected);
  }
  fan_out.dial(now + 10'000);
  CHECK(fan_out.under_way() == kLeastLoginWindow);
}

TEST_CASE("a window that is smaller from the start, as a jump host's, stays so when refused") {
  FanOut fan_out(10, 2);
  CHECK(fan_out.dial(0).size() == 2);
  CHECK(fan_out.refused(0, 0));
  CHECK(fan_out.window() == 2);
}

TEST_CASE("the window ends growing at so many processes as a launcher can have") {
  FanOut fan_out(1000);
  int logged_in = 0;
  while (!fan_out.over()) {
    for (const int host : fan_out.dial(0)) fan_out.logged_in(host), ++logged_in;
    CHECK(fan_out.window() <= kMostLoginWindow);
  }
  CHECK(logged_in == 1000);
  CHECK(fan_out.window() == kMostLoginWindow);
}

TEST_CASE("a refused host comes back when its time is over, before new ones") {
  FanOut fan_out(6, 4);
  CHECK(fan_out.dial(0) == std::vector<int>{0, 1, 2, 3});
  CHECK(fan_out.refused(2, 100));
  const Millis due = 100 + login_back_off(2, 1);
  CHECK(fan_out.dial(100) == std::vector<int>{4});
  CHECK_FALSE(fan_out.deadline().has_value());  // no room: time alone changes nothing
  fan_out.failed(0);
  CHECK(fan_out.dial(due - 1) == std::vector<int>{5});
  fan_out.failed(1);
  CHECK(fan_out.deadline() == due);
  CHECK(fan_out.dial(due - 1).empty());
  CHECK(fan_out.dial(due) == std::vector<int>{2});
}

TEST_CASE("a host that is refused for too long is given up, and the others go on") {
  FanOut fan_out(2);
  CHECK(fan_out.dial(0).size() == 2);
  fan_out.logged_in(1);
  Millis now = 0;
  int attempts = 1;
  while (fan_out.refused(0, now)) {
    now = fan_out.deadline().value();
    CHECK(fan_out.dial(now) == std::vector<int>{0});
    ++attempts;
  }
  CHECK(now >= kLoginPatience);
  CHECK(now <= kLoginPatience + kMostLoginBackOff);
  CHECK(attempts >= 20);
  CHECK(attempts <= 45);
  CHECK(fan_out.over());
}

TEST_CASE("back-off doubles from 0.3 s to 5 s, and hosts that were refused together come back apart") {
  for (int host = 0; host < 1000; ++host) {
    for (int attempt = 1; attempt < 100; ++attempt) {
      const Millis full =
          std::min<Millis>(kFirstLoginBackOff << std::min(attempt - 1, 10), kMostLoginBackOff);
      const Millis wait = login_back_off(host, attempt);
      REQUIRE(wait >= full / 2);
      REQUIRE(wait <= full);
      REQUIRE(wait == login_back_off(host, attempt));
    }
  }
  std::map<Millis, int> together;
  for (int host = 0; host < 64; ++host) ++together[login_back_off(host, 5) / 100];
  for (const auto& [tenth, hosts] : together) CHECK(hosts <= 12);
  CHECK(login_back_off(0, 1'000'000'000) <= kMostLoginBackOff);
}

TEST_CASE("no hosts: over at once") {
  FanOut fan_out(0);
  CHECK(fan_out.dial(0).empty());
  CHECK(fan_out.over());
}

TEST_CASE("200 hosts behind one sshd with the default MaxStartups come up, whatever is dropped") {
  Millis longest = 0;
  int refused = 0, most_attempts = 0;
  constexpr int kSeeds = 1000;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const auto outcome = run(200, seed);
    CHECK(outcome.logged_in == 200);
    CHECK(outcome.given_up == 0);
    CHECK(outcome.ended_at < 60'000);
    longest = std::max(longest, outcome.ended_at);
    refused += outcome.refused;
    most_attempts = std::max(most_attempts, outcome.most_attempts);
  }
  MESSAGE("longest ", longest, " ms, ", refused / kSeeds, " refusals a run, at most ", most_attempts,
          " attempts");
}

TEST_CASE("ten thousand hosts behind one sshd are no work for the launcher") {
  const auto outcome = run(10'000, 1);
  CHECK(outcome.logged_in == 10'000);
}

}  // namespace dtrun::cmd::fan_out_test
