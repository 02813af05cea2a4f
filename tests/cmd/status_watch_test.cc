// `dtrun status --watch`: the output for scripts and people while runs end. The real dtrun with real jobs.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "tests/support/clock.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace dtrun::status_watch_test {

using namespace dtrun::test;
using namespace std::string_literals;

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::json;

// A user of its own, as far as `dtrun status` can tell: its jobs are in a folder that nobody else has.
struct User {
  Folder folder;
  Words environment{"XDG_RUNTIME_DIR=" + folder.path().string(), "RDZV_ID=",
                    "DTRUN_TEST_TIMES=until_gone=" + std::to_string(soon(std::chrono::seconds(2)).count())};

  std::string file(const std::string& name) const { return (folder.path() / name).string(); }
  void touch(const std::string& name) const { std::ofstream(file(name)).close(); }

  // A job that ends with `exit_code` once the file of its name is there.
  Words job(const std::string& name, int exit_code, const Words& options = {}) const {
    Words words{kDtrun, "--rdzv_id", name};
    words.insert(words.end(), options.begin(), options.end());
    const std::string script =
        "until [ -e " + file(name) + " ]; do sleep 0.02; done; exit " + std::to_string(exit_code);
    words.insert(words.end(), {"--", "/bin/sh", "-c", script});
    return words;
  }
  Words status(const Words& arguments) const {
    Words words{kDtrun, "status"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  // Until the run's first generation is at work.
  bool runs(const std::string& name) const {
    return run(status({"--until", "running", name}), environment).exit_code == 0;
  }
  // The socket of the run's coordinator.
  std::string socket_of(const std::string& name) const {
    Process status(this->status({"--json", name}), environment);
    REQUIRE(status.wait() == 0);
    const std::string endpoint = Json::parse(status.out())[0]["endpoint"];
    REQUIRE(endpoint.starts_with("unix:"));
    return endpoint.substr(5);
  }
};

// Asks for a run's end as a gRPC client would, but has no room for the answer until take(): HTTP/2 by hand.
class SlowWatcher {
 public:
  SlowWatcher(const std::string& path, const std::string& run_id)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kSettings, 0, 0, "\0\4\0\0\0\0"s));  // initial window: 0
    ask(kEnd, run_id, true);
  }
  ~SlowWatcher() { close(fd_); }
  SlowWatcher(const SlowWatcher&) = delete;

  // Once the coordinator answers a question that came behind, it has heard the first.
  void await_heard() {
    ask(kProbe, "another", false);
    while (next_frame() != std::pair(kHeaders, kProbe)) {
    }
    give_room(kProbe);
  }
  void take() { give_room(kEnd); }
  std::string received() {  // until the server hangs up
    std::string all;
    char chunk[4096];
    for (ssize_t n; (n = recv(fd_, chunk, sizeof chunk, 0)) > 0;)
      all.append(chunk, static_cast<std::size_t>(n));
    return all;
  }

 private:
  static constexpr char kData = 0, kHeaders = 1, kSettings = 4, kWindowUpdate = 8;
  static constexpr char kEnd = 1, kProbe = 3;  // streams

  void ask(char stream, const std::string& run_id, bool at_end) {
    dtrun::rendezvous::v1::StatusRequest request;
    request.set_run_id(run_id);
    request.set_at_end(at_end);
    const std::string message = request.SerializeAsString();
    const std::string headers = field(":method", "POST") + field(":scheme", "http") +
                                field(":path", "/dtrun.rendezvous.v1.Rendezvous/Status") +
                                field(":authority", "x") + field("te", "trailers") +
                                field("content-type", "application/grpc");
    say(frame(kHeaders, 4, stream, headers) +
        frame(kData, 1, stream, "\0\0\0\0"s + static_cast<char>(message.size()) + message));
  }
  void give_room(char stream) { say(frame(kWindowUpdate, 0, stream, "\0\1\0\0"s)); }

  // Its kind and stream.
  std::pair<char, char> next_frame() {
    const std::string head = receive(9);
    receive(std::size_t{static_cast<unsigned char>(head[1])} << 8 | static_cast<unsigned char>(head[2]));
    return {head[3], head[8]};
  }
  std::string receive(std::size_t bytes) {
    std::string all(bytes, '\0');
    REQUIRE(recv(fd_, all.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
    return all;
  }

  static std::string frame(char type, char flags, char stream, const std::string& body) {
    const auto length = static_cast<unsigned>(body.size());
    return std::string{static_cast<char>(length >> 16),
                       static_cast<char>(length >> 8),
                       static_cast<char>(length),
                       type,
                       flags,
                       0,
                       0,
                       0,
                       stream} +
           body;
  }
  static std::string field(const std::string& name, const std::string& value) {  // HPACK's plainest form
    return "\0"s + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
  }
  void say(const std::string& bytes) {
    CHECK(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }

  const int fd_;
};

std::vector<Json> objects(const std::string& text) {
  std::vector<Json> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) found.push_back(Json::parse(line));
  return found;
}

// Says its endpoint in the output's first line, its log is in the errors.
struct WatchedStore {
  Process process{
      {"/bin/sh", "-c", "exec \"$0\" store --bind 127.0.0.1 --port 0 --ready_fd 3 3>&1 >&2", kDtrun}};
  std::string endpoint() {
    REQUIRE(process.wait_for_out("\n"));
    const std::string out = process.out();
    return out.substr(0, out.find('\n'));
  }
};

}  // namespace

TEST_CASE("watching a run ends with it and its exit code, though its coordinator goes in the same moment") {
  const User user;
  for (int round = 0; round < 8; ++round) {  // the end falls anywhere between two looks
    const std::string name = "w" + std::to_string(round);
    Process job(user.job(name, round), user.environment);
    REQUIRE_MESSAGE(user.runs(name), job.err());
    Process watch(user.status({"--watch", name, "--exit-status", "--json"}), user.environment);
    REQUIRE(watch.wait_for_out("\"phase\":\"running\""));
    usleep(static_cast<useconds_t>(130000 * round));
    user.touch(name);
    CHECK(job.wait() == round);
    CHECK_MESSAGE(watch.wait(Process::Duration(5000)) == round, watch.err());
    const std::vector<Json> seen = objects(watch.out());
    REQUIRE(seen.size() >= 2);
    CHECK(seen.front()["run_id"] == name);
    CHECK(seen.front()["phase"] == "running");
    CHECK(seen.back()["phase"] == "over");
    CHECK(seen.back()["exit_code"] == round);
    CHECK(watch.err() == "");
  }
}

TEST_CASE("how a run ended is known when its coordinator is gone: to scripts, to people, to a late watcher") {
  const User user;
  user.touch("good");
  user.touch("bad");
  Process good(user.job("good", 0), user.environment), bad(user.job("bad", 9), user.environment);
  Process interrupted(user.job("interrupted", 0), user.environment);
  CHECK(good.wait() == 0);
  CHECK(bad.wait() == 9);
  REQUIRE(user.runs("interrupted"));
  interrupted.signal(SIGINT);
  CHECK(interrupted.wait() == 130);
  for (const auto& [name, code] :
       {std::pair("good", 0), std::pair("bad", 9), std::pair("interrupted", 130)}) {
    Process json(user.status({"--json", name}), user.environment);
    CHECK(json.wait() == 0);
    const Json runs = Json::parse(json.out());
    REQUIRE(runs.size() == 1);
    CHECK(runs[0]["version"] == 1);
    CHECK(runs[0]["phase"] == "over");
    CHECK(runs[0]["exit_code"] == code);
    CHECK(runs[0]["ended_age"] < 60);
    CHECK(runs[0]["generation"] == 1);
    Process watch(user.status({"--watch", "--exit-status", name}), user.environment);
    CHECK(watch.wait() == code);
    CHECK(watch.err() == "");
  }
  Process all(user.status({}), user.environment);
  CHECK(all.wait() == 0);
  CHECK(contains(all.out(), ": over, exit code 9, "));
  CHECK(contains(all.out(), "  because rank 0 on "));
  CHECK(contains(all.out(), "  because stopped by SIGINT\n"));
}

TEST_CASE("of many runs that have ended the newest are shown, and all are known") {
  const User user;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "run" + std::to_string(i);
    user.touch(name);
    Process job(user.job(name, 0), user.environment);
    CHECK(job.wait() == 0);
  }
  Process text(user.status({}), user.environment), json(user.status({"--json"}), user.environment);
  CHECK(text.wait() == 0);
  CHECK(json.wait() == 0);
  CHECK(contains(text.out(), "run run7 "));
  CHECK(contains(text.out(), "run run3 "));
  CHECK(!contains(text.out(), "run run2 "));
  CHECK(contains(text.out(), "and 3 that ended before; "));
  CHECK(Json::parse(json.out()).size() == 8);
  Process oldest(user.status({"run0"}), user.environment);
  CHECK(oldest.wait() == 0);
  CHECK(contains(oldest.out(), "run run0 "));
}

TEST_CASE("the next run of a name stands before the one that ended, and its end replaces that") {
  const User user;
  user.touch("again");
  Process first(user.job("again", 3), user.environment);
  CHECK(first.wait() == 3);
  std::filesystem::remove(user.file("again"));
  Process second(user.job("again", 4), user.environment);
  REQUIRE(eventually([&] { return user.runs("again"); }));  // until then the first one's end is known
  Process running(user.status({"--json"}), user.environment);
  CHECK(running.wait() == 0);
  REQUIRE(Json::parse(running.out()).size() == 1);
  Process watch(user.status({"--watch", "again", "--exit-status"}), user.environment);
  REQUIRE(watch.wait_for_out("running"));
  second.signal(SIGKILL);  // without a word: the first run's end is not taken for this one's
  CHECK(watch.wait() == 69);
  user.touch("again");
  Process third(user.job("again", 5), user.environment);
  CHECK(third.wait() == 5);
  Process over(user.status({"--json"}), user.environment);
  CHECK(over.wait() == 0);
  REQUIRE(Json::parse(over.out()).size() == 1);
  CHECK(Json::parse(over.out())[0]["exit_code"] == 5);
}

TEST_CASE("a store knows the runs that have ended there") {
  const User user;
  WatchedStore store;
  const std::string endpoint = store.endpoint();
  user.touch("one");
  Process one(user.job("one", 5, {"--nnodes", "1:1", "--rdzv_endpoint", endpoint}), user.environment);
  CHECK(one.wait() == 5);
  const Words elsewhere{"XDG_RUNTIME_DIR=/nonexistent", "RDZV_ID=", "RDZV_ENDPOINT="};
  for (const Words& question : {Words{"one"}, Words{}}) {
    Words words = question;
    words.insert(words.end(), {"--json", "--rdzv_endpoint", endpoint});
    Process status(user.status(words), elsewhere);
    CHECK(status.wait() == 0);
    const Json runs = Json::parse(status.out());
    REQUIRE(runs.size() == 1);
    CHECK(runs[0]["run_id"] == "one");
    CHECK(runs[0]["exit_code"] == 5);
    CHECK(runs[0]["nodes"][0]["heartbeat_age"].is_null());
  }
  Process watch(user.status({"--watch", "--exit-status", "--rdzv_endpoint", endpoint, "one"}), elsewhere);
  CHECK(watch.wait() == 5);
}

TEST_CASE("the coordinator does not go with its run before a watcher has the answer, however slow it is") {
  const User user;
  Process job(user.job("slow", 3), user.environment);
  REQUIRE_MESSAGE(user.runs("slow"), job.err());
  SlowWatcher watcher(user.socket_of("slow"), "slow");
  watcher.await_heard();
  user.touch("slow");
  REQUIRE(job.wait_for_err("the job failed"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  CHECK(is_alive(job.pid()));
  watcher.take();
  CHECK(contains(watcher.received(), "slow"));
  CHECK(job.wait(Process::Duration(5000)) == 3);
}

TEST_CASE("without --exit-status the end of a run is a success of watching it, however the run ended") {
  const User user;
  Process job(user.job("failing", 9), user.environment);
  REQUIRE_MESSAGE(user.runs("failing"), job.err());
  Process watch(user.status({"failing", "--watch"}), user.environment);
  REQUIRE(watch.wait_for_out("run failing at unix:"));
  user.touch("failing");
  CHECK(job.wait() == 9);
  CHECK(watch.wait() == 0);
  CHECK(contains(watch.out(), ": running, generation 1 for "));
  CHECK(contains(watch.out(), ": over, exit code 9, "));
  CHECK(contains(watch.out(), " s ago\n  because "));
}

TEST_CASE("a run whose coordinator is killed is given up, since how it ended is not known") {
  const User user;
  Process job(user.job("killed", 0), user.environment);
  REQUIRE_MESSAGE(user.runs("killed"), job.err());
  Process watch(user.status({"--watch", "killed", "--exit-status"}), user.environment);
  REQUIRE(watch.wait_for_out("running"));
  job.signal(SIGKILL);
  CHECK(watch.wait() == 69);
  CHECK_MESSAGE(contains(watch.err(), "; waiting for it to be back\n"), watch.err());
  CHECK_MESSAGE(contains(watch.err(), "is gone, and did not say how the run ended (see "), watch.err());
}

TEST_CASE("a run that is not known is 69 with the way to find it, watched or not") {
  const User user;
  WatchedStore store;
  const std::string endpoint = store.endpoint();
  for (const Words& how : {Words{"--watch"}, Words{"--watch", "--json"}, Words{}, Words{"--json"}}) {
    Words here = how, there = how;
    here.push_back("nobody");
    there.insert(there.end(), {"--rdzv_endpoint", endpoint, "nobody"});
    Process local(user.status(here), user.environment), remote(user.status(there), user.environment);
    CHECK(local.wait() == 69);
    CHECK(local.out() == "");
    CHECK(local.err() ==
          "dtrun: no run nobody of this user on this host; elsewhere: --rdzv_endpoint HOST[:PORT]\n");
    CHECK(remote.wait() == 69);
    CHECK(remote.out() == "");
    CHECK_MESSAGE(remote.err().starts_with("dtrun: no run nobody at " + endpoint), remote.err());
  }
}

TEST_CASE("of several runs of a store one is watched to its end, all are an object a line each") {
  const User user;
  WatchedStore store;
  const std::string endpoint = store.endpoint();
  Process one(user.job("one", 5, {"--nnodes", "1:1", "--rdzv_endpoint", endpoint}), user.environment);
  Process two(user.job("two", 0, {"--nnodes", "1:1", "--rdzv_endpoint", endpoint}), user.environment);
  const Words environment{"RDZV_ID=", "PET_RDZV_ENDPOINT=" + endpoint};
  Process all(user.status({"--watch", "--json"}), environment);
  REQUIRE(all.wait_for_out("\"run_id\":\"one\""));
  REQUIRE(all.wait_for_out("\"run_id\":\"two\""));
  Process watch(user.status({"--json", "--watch", "one", "--exit-status"}), environment);
  REQUIRE(watch.wait_for_out("\"phase\":\"running\""));
  user.touch("one");
  CHECK(one.wait() == 5);
  CHECK(watch.wait() == 5);
  for (const Json& seen : objects(watch.out())) CHECK(seen["run_id"] == "one");
  user.touch("two");
  CHECK(two.wait() == 0);
  all.signal(SIGINT);
  CHECK(all.wait() == 128 + SIGINT);
  for (const Json& seen : objects(all.out())) CHECK(seen.is_object());
}

TEST_CASE("a phase is waited for from before the run begins, and refused once the run is over") {
  const User user;
  Process runs(user.status({"early", "--until", "running", "--json"}), user.environment);
  Process over(user.status({"early", "--until", "over"}), user.environment);
  CHECK(runs.wait_for_err("dtrun: waiting: no run early of this user on this host; elsewhere: "));
  Process job(user.job("early", 5), user.environment);
  CHECK(runs.wait() == 0);
  REQUIRE(objects(runs.out()).size() == 1);
  CHECK(objects(runs.out())[0]["phase"] == "running");
  CHECK(is_alive(over.pid()));
  user.touch("early");
  CHECK(job.wait() == 5);
  CHECK(over.wait() == 0);
  CHECK(contains(over.out(), "run early at unix:"));
  CHECK(contains(over.out(), ": over, exit code 5, "));
  const Ended late = run(user.status({"early", "--until", "running"}), user.environment);
  CHECK(late.exit_code == 69);
  CHECK(late.out == "");
  CHECK(late.err == "dtrun: run early is over, exit code 5, and was not seen running\n");
}

TEST_CASE("a watcher that is interrupted does not hold up the run's end") {
  const User user;
  Process job(user.job("left", 0), user.environment);
  REQUIRE_MESSAGE(user.runs("left"), job.err());
  Process stopped(user.status({"--watch", "left"}), user.environment);
  Process gone(user.status({"--watch", "left"}), user.environment);
  REQUIRE(stopped.wait_for_out("running"));
  REQUIRE(gone.wait_for_out("running"));
  stopped.signal(SIGSTOP);
  gone.signal(SIGKILL);
  gone.wait();
  user.touch("left");
  CHECK(job.wait(Process::Duration(10000)) == 0);
  stopped.signal(SIGCONT);
  CHECK(stopped.wait() == 0);
  CHECK(contains(stopped.out(), "over, exit code 0"));
}

TEST_CASE("a run is known by the directory that it left, while it is at work and long after") {
  const User user;
  const std::string logs = user.file("logs"), left = logs + "/kept";
  Process job(user.job("kept", 6, {"--log_dir", logs}), user.environment);
  REQUIRE_MESSAGE(user.runs("kept"), job.err());
  const auto seen = [&](const Words& arguments, int exit_code) {
    Process status(user.status(arguments), user.environment);
    CHECK(status.wait() == exit_code);
    CHECK_MESSAGE(status.err() == "", status.err());
    return Json::parse(status.out());
  };
  CHECK(seen({"--json", left}, 0)[0]["phase"] == "running");
  Process watch(user.status({"--watch", "--exit_status", left + "/"}), user.environment);
  REQUIRE(watch.wait_for_out("running"));
  user.touch("kept");
  CHECK(job.wait() == 6);
  CHECK(watch.wait() == 6);
  std::filesystem::remove_all(user.folder.path() / "dtrun");  // as after ten minutes, or on another host
  for (const std::string& named : {left, logs, left + "/report.json"}) {
    const Json run = seen({"--json", named}, 0)[0];
    CHECK(run["run_id"] == "kept");
    CHECK(run["phase"] == "over");
    CHECK(run["exit_code"] == 6);
    CHECK(run["world_size"] == 1);
    CHECK(run["endpoint"] == left);
  }
  CHECK(seen({"--json", "--watch", "--exit_status", left}, 6)["exit_code"] == 6);
}

TEST_CASE("a directory that does not tell how its run ended is 69, one without a run 66") {
  const User user;
  const std::string logs = user.file("logs");
  Process job(user.job("killed", 0, {"--log_dir", logs}), user.environment);
  REQUIRE_MESSAGE(user.runs("killed"), job.err());
  job.signal(SIGKILL);
  job.wait();
  Process killed(user.status({logs}), user.environment), none(user.status({"/proc/self"}), user.environment);
  CHECK(killed.wait() == 69);
  CHECK(contains(killed.err(), logs + ": there is no report.json, and no agent of the run is on this host"));
  CHECK(none.wait() == 66);
  CHECK(contains(none.err(), "/proc/self: no run left anything here"));
}

TEST_SUITE("long") {
  TEST_CASE("a question ends in time although its name server never answers") {
    const User user;
    const Stopwatch watch;
    Process status(
        user.status({"--rdzv_endpoint", "coordinator.example"}),
        joined(user.environment,
               preloaded(std::filesystem::path(kDtrun).parent_path().parent_path() / "tests/slow_names.so")));
    CHECK(status.wait() == 69);
    CHECK(watch.fair() < std::chrono::seconds(40));
    CHECK(contains(status.err(), "no answer in time"));
  }

  TEST_CASE("two thousand questions, while jobs begin and end, are all answered in time") {
    const User user;
    Process jobs(
        {"sh", "-c",
         "while :; do " + shell_text({kDtrun, "--rdzv_id", "brief", "--", "sleep", "0.2"}) + "; done"},
        user.environment);
    Process stays(user.job("stays", 0), user.environment);
    REQUIRE(user.runs("stays"));
    std::chrono::duration<double> longest{0};
    for (int i = 0; i < 2000; ++i) {
      const Stopwatch watch;
      CHECK(run(user.status({"--json"}), user.environment).exit_code == 0);
      longest = std::max<std::chrono::duration<double>>(longest, watch.fair());
    }
    CHECK(longest.count() < 10);
    MESSAGE("longest: " << longest.count() << " s");
    user.touch("stays");
    CHECK(stays.wait() == 0);
  }
}

}  // namespace dtrun::status_watch_test
