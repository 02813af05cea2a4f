// A flood of unauthenticated peers (tests/rendezvous/flood.h) against a coordinator with a key, and against a
// `dtrun store`, while a job runs. None hears a word of HTTP/2, the job does not notice, and a member that
// connects meanwhile comes in within seconds. DTRUN_TEST_FLOOD is how many (5,000) at least.
#include "tests/rendezvous/flood.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/e2e/training.h"

namespace dtrun::flood_test {

using namespace dtrun::test;
using namespace dtrun::rendezvous;

namespace {

long number_of_peers() {
  const char* const number = std::getenv("DTRUN_TEST_FLOOD");
  return number != nullptr ? std::atol(number) : 5000;
}

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

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
  Site() {
    write_text(folder / "key", key.text());
    chmod((folder / "key").c_str(), 0600);
  }
  std::vector<std::string> job(const std::vector<std::string>& options, const std::string& output) const {
    return endless_training(options, folder / output);
  }
  std::vector<std::string> node() const {
    return {"--nnodes", "1",          "--nproc_per_node",       "1", "--lanes", "1", "--rdzv_endpoint",
            endpoint,   "--key_file", (folder / "key").string()};
  }
  long done() const { return steps_done(folder / "out"); }

  const Folder folder;
  const JobKey key = JobKey::random();
  const int port = free_port();
  const std::string endpoint = "127.0.0.1:" + std::to_string(port);
};

// Steps a second, over so long.
double speed(const Site& site, std::chrono::milliseconds time) {
  const Stopwatch watch;
  const long before = site.done();
  std::this_thread::sleep_for(time);
  return static_cast<double>(site.done() - before) / seconds(watch.wall());
}

// Seconds that a member's call takes, as `dtrun status` makes it, on a new connection. In a process of its
// own: this one's threads of the flood run where nobody else wants to, and hold this one's locks meanwhile.
double ask(const Site& site) {
  const Stopwatch watch;
  const Ended told = run({kDtrun, "status", "--json", "--rdzv_endpoint", site.endpoint, "--key_file",
                          (site.folder / "key").string()});
  const double took = seconds(watch.fair());
  REQUIRE_MESSAGE(told.exit_code == 0, told.err);
  CHECK(nlohmann::json::parse(told.out).size() == 1);
  return took;
}

// A flood has come when so many calls were made meanwhile, too.
constexpr std::size_t kCalls = 10;

// `files`: how many more the coordinator may have open meanwhile.
void weather(const Site& site, pid_t coordinator, Process& job, long files) {
  REQUIRE(trains(site.folder / "out", 20));
  const Recordings recordings = record(site.port, site.key);
  REQUIRE(!recordings.plain.empty());
  REQUIRE(!recordings.locked.empty());
  const double before_it = speed(site, std::chrono::seconds(2)), calm_call = ask(site);
  const Usage base = usage_of(coordinator);
  Usage most = base;
  const Stopwatch watch;
  const long before = site.done();
  Flood flood(site.port, std::numeric_limits<long>::max(), recordings);
  std::vector<double> calls;
  while (flood.come() < number_of_peers() || calls.size() < kCalls) {
    const Usage now = usage_of(coordinator);
    most = {.files = std::max(most.files, now.files), .kilobytes = std::max(most.kilobytes, now.kilobytes)};
    calls.push_back(ask(site));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const double took = seconds(watch.wall());
  const double noisy = static_cast<double>(site.done() - before) / seconds(watch.fair());
  flood.stop();
  flood.wait();
  REQUIRE(is_alive(job.pid()));
  // Others come and go on this machine, too: the slower of the two quiet times counts.
  const double quiet = std::min(before_it, speed(site, std::chrono::seconds(2)));
  CHECK(quiet > 0);
  CHECK(flood.answered() == 0);
  for (int kind = 0; kind < Flood::kKinds; ++kind) CHECK(flood.come(kind) > flood.come() / Flood::kKinds / 2);
  const bool back =
      eventually([&] { return usage_of(coordinator).files <= base.files + 2; }, std::chrono::seconds(15));
  const Usage after = usage_of(coordinator);
  CHECK(back);
  CHECK(most.files - base.files <= files);
  CHECK(most.kilobytes - base.kilobytes < 128 * 1024);
  CHECK(after.kilobytes - base.kilobytes < 96 * 1024);
  CHECK(noisy > quiet / 3);
  std::ranges::sort(calls);
  const double usual = calls[calls.size() / 2], slowest = calls.back();
  CHECK(slowest < 10);
  MESSAGE(flood.come(), " unauthenticated peers in ", took, " s; the job: ", quiet, " steps/s without it, ",
          noisy, " meanwhile; a status call ", calm_call, " s without it, ", usual, " s, at most ", slowest,
          " s; the coordinator: ", base.kilobytes >> 10, ", ", most.kilobytes >> 10, ", ",
          after.kilobytes >> 10, " MiB and ", base.files, ", ", most.files, ", ", after.files,
          " files before, at most, after");
}

// The loss of each step so far, and with it the parameters before that.
std::vector<double> losses(const std::filesystem::path& output) {
  std::istringstream lines(read_if_there(output / "metrics.jsonl"));
  std::vector<double> found;
  for (std::string line; std::getline(lines, line) && !lines.eof();)
    if (const auto event = nlohmann::json::parse(line); event["event"] == "train")
      found.push_back(event["loss"]);
  return found;
}

// Ends the job.
std::string words_at_end(Process& job) {
  job.signal(SIGTERM);
  const Ended ended = job.end(std::chrono::minutes(2));
  CHECK_MESSAGE(ended.exit_code == 143, ended.err);
  return ended.err;
}

TEST_CASE("a coordinator in an agent, under a flood: nobody is answered, and each step is as without one") {
  signal(SIGPIPE, SIG_IGN);
  const Site site;
  Process job(site.job(site.node(), "out"));
  weather(site, job.pid(), job, 512 + 20);
  CHECK(!contains(words_at_end(job), "unauthenticated peer"));
  const std::vector<double> done = losses(site.folder / "out");
  const Ended alone =
      run(training(standalone(1), site.folder / "alone", {"train.max_steps=" + std::to_string(done.size())}));
  REQUIRE_MESSAGE(alone.exit_code == 0, alone.err);
  CHECK(done == losses(site.folder / "alone"));
}

TEST_CASE("unauthenticated peers take no file that the job needs where few may be open") {
  signal(SIGPIPE, SIG_IGN);
  const Site site;
  std::vector<std::string> argv{"/bin/sh", "-c", "ulimit -n 80 && exec \"$@\"", "sh"};
  for (const std::string& word : site.job(site.node(), "out")) argv.push_back(word);
  Process job(argv);
  REQUIRE(trains(site.folder / "out", 20));
  const Recordings recordings = record(site.port, site.key);
  long base = 0;
  const Stopwatch watch;
  while (watch.wall() < std::chrono::seconds(1)) base = std::max(base, usage_of(job.pid()).files);
  long most = base;
  Flood flood(site.port, number_of_peers() / 4, recordings);
  while (!flood.over()) {
    most = std::max(most, usage_of(job.pid()).files);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(most > base);
  // 46 are for agent and worker; on a busy machine gRPC closes what it has let go a moment late.
  CHECK(most <= base + 80 - 46 + 2);
  CHECK(flood.answered() == 0);
  words_at_end(job);
}

std::vector<std::string> store_at(const Site& site) {
  return {kDtrun,       "store",
          "--bind",     "127.0.0.1",
          "--port",     std::to_string(site.port),
          "--key_file", (site.folder / "key").string()};
}

TEST_CASE("a store under a flood: it serves its job, and tells of no other") {
  signal(SIGPIPE, SIG_IGN);
  const Site site;
  Process store(store_at(site));
  REQUIRE(store.wait_for_out("listening"));
  Process job(site.job(site.node(), "out"));
  weather(site, store.pid(), job, 512 + 20);
  words_at_end(job);
  CHECK(!contains(store.out(), "unauthenticated peer"));
  store.signal(SIGTERM);
  CHECK(store.wait() == 143);
}

}  // namespace

}  // namespace dtrun::flood_test
