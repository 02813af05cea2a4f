// A flood of unauthenticated peers (tests/rendezvous/flood.h) against a coordinator with a key, and against a
// `dtrun store`, while a job runs. None hears a word of HTTP/2, and the job does not notice. DTRUN_TEST_FLOOD
// is how many (20,000).
#include "tests/rendezvous/flood.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <thread>

#include "rendezvous/client/status_client.h"
#include "tests/e2e/training.h"

using namespace dtrun::test;
using namespace dtrun::rendezvous;

namespace {

using Clock = std::chrono::steady_clock;

long number_of_peers() {
  const char* const number = std::getenv("DTRUN_TEST_FLOOD");
  return number != nullptr ? std::atol(number) : 20000;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A process' use of the machine.
struct Usage {
  long files = 0, kilobytes = 0;
};

Usage usage_of(pid_t pid) {
  const std::string at = "/proc/" + std::to_string(pid);
  Usage usage;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(at + "/fd", error)) (void)entry, ++usage.files;
  const std::string status = read_if_there(at + "/status");
  const std::size_t found = status.find("VmRSS:");
  if (found != std::string::npos) usage.kilobytes = std::atol(status.c_str() + found + 6);
  return usage;
}

// The job, and where it meets.
struct Site {
  explicit Site(int steps) : steps(steps) {
    write_text(folder / "key", key.text());
    chmod((folder / "key").c_str(), 0600);
  }
  std::vector<std::string> job(const std::vector<std::string>& options, const std::string& output) const {
    return training(options, folder / output, {"train.max_steps=" + std::to_string(steps)});
  }
  std::vector<std::string> node() const {
    return {"--nnodes", "1",          "--nproc_per_node",       "1", "--lanes", "1", "--rdzv_endpoint",
            endpoint,   "--key_file", (folder / "key").string()};
  }
  long done() const { return metrics_lines(folder / "out"); }

  const Folder folder;
  const JobKey key = JobKey::random();
  const int steps;
  const int port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
};

// The flood ends before the job does.
constexpr int kLastSteps = 500;

// Steps a second, over so many seconds, or as long as the job surely trains.
double speed(const Site& site, double seconds) {
  const auto begin = Clock::now();
  const long before = site.done();
  long done = before;
  while (seconds_since(begin) < seconds && done < site.steps - 50) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = site.done();
  }
  return static_cast<double>(done - before) / seconds_since(begin);
}

// `files`: how many more the coordinator may have open meanwhile.
void weather(const Site& site, pid_t coordinator, const Process& job, long number, long files) {
  REQUIRE(eventually([&] { return site.done() >= 20; }));
  const Recordings recordings = record(site.port, site.key);
  REQUIRE(!recordings.plain.empty());
  REQUIRE(!recordings.locked.empty());
  const double before_it = speed(site, 3);
  const Usage base = usage_of(coordinator);
  Usage most = base;
  const auto begin = Clock::now();
  const long before = site.done();
  Flood flood(site.port, number, recordings);
  double slowest = 0;
  while (!flood.over() && site.done() < site.steps - kLastSteps) {
    const Usage now = usage_of(coordinator);
    most = {.files = std::max(most.files, now.files), .kilobytes = std::max(most.kilobytes, now.kilobytes)};
    const auto asked = Clock::now();
    const auto status = fetch_status("127.0.0.1", site.port, "", std::chrono::seconds(20), site.key);
    CHECK_MESSAGE(status.ok(), status.status().message());
    if (status.ok()) CHECK(status.value().runs_size() == 1);
    slowest = std::max(slowest, seconds_since(asked));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const double took = seconds_since(begin);
  const double noisy = static_cast<double>(site.done() - before) / took;
  REQUIRE(is_alive(job.pid()));
  flood.stop();
  flood.wait();
  // Others come and go on this machine, too: the slower of the two quiet times counts.
  REQUIRE(site.done() < site.steps - 100);
  const double quiet = std::min(before_it, speed(site, 2));
  CHECK(quiet > 0);
  CHECK(flood.answered() == 0);
  for (int kind = 0; kind < Flood::kKinds; ++kind) CHECK(flood.come(kind) > flood.come() / Flood::kKinds / 2);
  CHECK(flood.come() > 500);
  const bool back =
      eventually([&] { return usage_of(coordinator).files <= base.files + 2; }, std::chrono::seconds(15));
  const Usage after = usage_of(coordinator);
  CHECK(back);
  CHECK(most.files - base.files <= files);
  CHECK(most.kilobytes - base.kilobytes < 128 * 1024);
  CHECK(after.kilobytes - base.kilobytes < 96 * 1024);
  CHECK(noisy > quiet / 3);
  CHECK(slowest < 10);
  MESSAGE(flood.come(), " unauthenticated peers in ", took, " s; the job: ", quiet, " steps/s without it, ",
          noisy, " meanwhile; a status call at most ", slowest, " s; the coordinator: ", base.kilobytes >> 10,
          ", ", most.kilobytes >> 10, ", ", after.kilobytes >> 10, " MiB and ", base.files, ", ", most.files,
          ", ", after.files, " files before, at most, after");
}

// Mostly enough for all of them; unauthenticated peers give way to other users of the machine.
int steps_for(long peers) { return static_cast<int>(700 + peers / 12); }

TEST_CASE("a coordinator in an agent, under a flood: nobody is answered, and the job's bytes are the same") {
  signal(SIGPIPE, SIG_IGN);
  const long number = number_of_peers() / 2;
  const Site site(steps_for(number));
  Process job(site.job(site.node(), "out"));
  weather(site, job.pid(), job, number, 512 + 20);
  const Ended ended = job.end(std::chrono::minutes(30));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(!contains(ended.err, "unauthenticated peer"));
  Process alone(site.job(standalone(1), "alone"));
  REQUIRE(alone.wait(std::chrono::minutes(30)) == 0);
  CHECK(model(site.folder / "out") == model(site.folder / "alone"));
}

TEST_CASE("unauthenticated peers take no file that the job needs where few may be open") {
  signal(SIGPIPE, SIG_IGN);
  const long number = number_of_peers() / 10;
  const Site site(steps_for(number));
  std::vector<std::string> argv{"/bin/sh", "-c", "ulimit -n 80 && exec \"$@\"", "sh"};
  for (const std::string& word : site.job(site.node(), "out")) argv.push_back(word);
  Process job(argv);
  REQUIRE(eventually([&] { return site.done() >= 20; }));
  const long base = usage_of(job.pid()).files;
  long most = base;
  Flood flood(site.port, number, record(site.port, site.key));
  while (!flood.over()) {
    most = std::max(most, usage_of(job.pid()).files);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(most > base);
  CHECK(most <= base + 80 - 46 - 1);  // not all of the 46 for agent and worker are open
  CHECK(flood.answered() == 0);
  const Ended ended = job.end(std::chrono::minutes(10));
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
}

std::vector<std::string> store_at(const Site& site) {
  return {kDtrun,       "store",
          "--bind",     "127.0.0.1",
          "--port",     std::to_string(site.port),
          "--key_file", (site.folder / "key").string()};
}

// No member has come from its address before: only its hello tells it from unauthenticated peers.
TEST_CASE("a member does not wait behind a flood the first time either") {
  signal(SIGPIPE, SIG_IGN);
  Recordings recordings;
  double slowest = 0;
  for (int round = 0; round < 4; ++round) {
    const Site site(1);
    Process store(store_at(site));
    REQUIRE(store.wait_for_out("listening"));
    if (round == 0) {
      recordings = record(site.port, site.key);
      continue;
    }
    Flood flood(site.port, 1'000'000, recordings);
    REQUIRE(eventually([&] { return flood.come() > 1500; }));
    const auto asked = Clock::now();
    const auto status = fetch_status("127.0.0.1", site.port, "", std::chrono::seconds(20), site.key);
    CHECK_MESSAGE(status.ok(), status.status().message());
    slowest = std::max(slowest, seconds_since(asked));
    flood.stop();
  }
  MESSAGE("the first call of a member takes at most ", slowest, " s");
  CHECK(slowest < 1);
}

TEST_CASE("a store under a flood: it serves its job, and tells of no other") {
  signal(SIGPIPE, SIG_IGN);
  const long number = number_of_peers() / 2;
  const Site site(steps_for(number));
  Process store(store_at(site));
  REQUIRE(store.wait_for_out("listening"));
  Process job(site.job(site.node(), "out"));
  weather(site, store.pid(), job, number, 1536 + 20);
  const Ended ended = job.end(std::chrono::minutes(30));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(!contains(store.out(), "unauthenticated peer"));
  store.signal(SIGTERM);
  CHECK(store.wait() == 143);
}

}  // namespace
