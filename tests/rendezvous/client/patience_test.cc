// How long a client tries before it says that it is of no use: on clocks made for the test. This program's
// clock_gettime stands still for each thread that asks for it, and its getaddrinfo knows no name.
#include <doctest/doctest.h>
#include <netdb.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "rendezvous/client/back_off.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/kv_calls.h"
#include "tests/support/process.h"

namespace dtrun::rendezvous::patience_test {
namespace {

using std::chrono::milliseconds;

thread_local std::optional<milliseconds> stands_at;  // this thread's steady clock, if it stands still

// Each query of the name service sets the clock to the next of these times, later queries to the last.
std::vector<milliseconds> asked_at;
std::atomic<std::size_t> asked{0};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_MONOTONIC || !stands_at)
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  time->tv_sec = stands_at->count() / 1000;
  time->tv_nsec = stands_at->count() % 1000 * 1'000'000;
  return 0;
}

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
  stands_at = asked_at[std::min(asked++, asked_at.size() - 1)];
  return EAI_NONAME;
}

namespace {

// The first failures of a client whose endpoint has a name that nobody knows.
std::vector<Disconnected> failures(std::size_t count) {
  std::mutex mutex;  // guards heard
  std::vector<Disconnected> heard;
  ClientOptions options;
  options.host = "node0";
  options.port = 29400;
  const auto client = Client::start(options, [&](ClientEvent event) {
    stands_at.reset();  // the pause before the next attempt is a real one
    const std::lock_guard lock(mutex);
    if (auto* failure = std::get_if<Disconnected>(&event)) heard.push_back(*failure);
  });
  test::eventually([&] {
    const std::lock_guard lock(mutex);
    return heard.size() >= count;
  });
  const std::lock_guard lock(mutex);
  return heard;
}

struct Answers {
  std::vector<control::KvReply> replies;
  std::shared_ptr<KvCalls> calls =
      std::make_shared<KvCalls>([this](int, control::KvReply reply) { replies.push_back(std::move(reply)); });
};

control::KvRequest get(std::int64_t timeout_ms) {
  control::KvRequest request;
  request.set_op(control::KvRequest::GET);
  request.set_key("k");
  request.set_timeout_ms(timeout_ms);
  return request;
}

}  // namespace

TEST_CASE("a name that is unknown for 15 s will not become known, one that is for less may") {
  asked_at = {milliseconds(1000), milliseconds(1000 + 14999), milliseconds(1000 + 15000)};
  asked = 0;
  const std::vector<Disconnected> heard = failures(3);
  REQUIRE(heard.size() >= 3);
  CHECK_FALSE(heard[0].permanent);
  CHECK_FALSE(heard[1].permanent);
  CHECK(heard[2].permanent);
  CHECK(heard[2].why.message().find("the host name \"node0\"") == 0);
}

TEST_CASE("a store operation waits for a connection for 30 s beyond what it may wait for its key") {
  constexpr std::int64_t kDay = 86'400'000;
  for (const auto& [asked, waited] :
       {std::pair<std::int64_t, std::int64_t>{0, 0}, std::pair<std::int64_t, std::int64_t>{700, 700},
        std::pair<std::int64_t, std::int64_t>{kDay, kDay},
        std::pair{std::numeric_limits<std::int64_t>::max(), kDay},
        std::pair<std::int64_t, std::int64_t>{-5, 0}}) {
    Answers answers;
    stands_at = milliseconds(1000);
    answers.calls->start(0, "p/", get(asked));
    stands_at = milliseconds(1000 + 30000 + waited - 1);
    answers.calls->expire();
    CHECK(answers.replies.empty());
    stands_at = milliseconds(1000 + 30000 + waited);
    answers.calls->expire();
    REQUIRE(answers.replies.size() == 1);
    CHECK_FALSE(answers.replies[0].ok());
    CHECK(answers.replies[0].error() == "store: not connected to the coordinator");
    stands_at.reset();
  }
}

TEST_CASE("a client tries again after 50 ms, then ever later up to 2 s, less a quarter at most") {
  std::uint64_t random = 1;
  for (const auto& [attempt, longest] : {std::pair{1, 50}, std::pair{2, 100}, std::pair{6, 1600},
                                         std::pair{7, 2000}, std::pair{8, 2000}, std::pair{1 << 30, 2000}}) {
    milliseconds least = milliseconds::max(), most{0};
    for (int n = 0; n < 10000; ++n) {
      const milliseconds wait = back_off(attempt, &random);
      least = std::min(least, wait);
      most = std::max(most, wait);
    }
    CHECK(most == milliseconds(longest));
    CHECK(least > milliseconds(longest * 3 / 4));
    CHECK(least <= milliseconds(longest * 3 / 4 + longest / 50));  // spread, indeed
  }
}

}  // namespace dtrun::rendezvous::patience_test
