// Trouble around a run: a full disk, a second run in the same output directory or right after the first,
// noise on the coordinator's port. A clear message, the contract's exit code, and what was there before stays
// as it was.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/ports.h"
#include "tests/support/skip.h"

namespace dtrun::trouble_test {

using namespace dtrun::test;
using namespace std::string_literals;

namespace {

// A connection that says `bytes` and then nothing more until the test ends.
class Noise {
 public:
  Noise(int port, const std::string& bytes) : fd_(connected_to(port)) {
    REQUIRE(fd_ >= 0);
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ~Noise() { close(fd_); }
  Noise(const Noise&) = delete;

 private:
  const int fd_;
};

std::string frame(char type, char flags, char stream, const std::string& body) {
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

// A header field in HPACK's plainest form.
std::string field(const std::string& name, const std::string& value) {
  return "\0"s + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

// The bytes of a gRPC client's call of Attend, with a message that is none.
std::string call_with(const std::string& message) {
  const std::string headers = field(":method", "POST") + field(":scheme", "http") +
                              field(":path", "/dtrun.rendezvous.v1.Rendezvous/Join") +
                              field(":authority", "x") + field("te", "trailers") +
                              field("content-type", "application/grpc");
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") + frame(1, 4, 1, headers) +
         frame(0, 0, 1, "\0\0\0\0"s + static_cast<char>(message.size()) + message);
}

}  // namespace

TEST_CASE("noise on the coordinator's port disturbs nobody") {
  const int port = free_port();
  const auto node = [&] {
    return std::vector<std::string>{
        kDtrun,      "--nnodes", "2",  "--rdzv_endpoint", "127.0.0.1:" + std::to_string(port),
        "--rdzv_id", "noisy",    "--", "/bin/true"};
  };
  Process first(node());
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  std::string garbage(100000, '\0');
  for (std::size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * i * 31 + i / 7);
  std::vector<std::unique_ptr<Noise>> connections;
  for (const std::string& bytes :
       {""s, "\n"s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"s, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s,
        garbage, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage,
        call_with("this is no protobuf"), call_with("\x0a\xff\xff\xff\xff\x7f")}) {
    connections.push_back(std::make_unique<Noise>(port, bytes));
  }
  Process second(node());
  const Ended a = first.end(), b = second.end();
  CHECK_MESSAGE(a.exit_code == 0, a.err);
  CHECK_MESSAGE(b.exit_code == 0, b.err);
}

// The node that is done first comes for the next job while the other one still hosts the last one's
// coordinator.
TEST_CASE("two nodes that run one job after another meet each time") {
  const std::string options = " --nnodes 2 --rdzv_endpoint 127.0.0.1:" + std::to_string(free_port()) +
                              " --rdzv_conf join_timeout=60 --rdzv_id sweep-$i -- /bin/true || exit $?";
  const std::vector<std::string> jobs{
      "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do " + shell_text({kDtrun}) + options + "; done"};
  Process first(jobs), second(jobs);
  for (Process* node : {&first, &second}) {
    const Ended ended = node->end();
    CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  }
}

TEST_CASE("a coordinator behind an address that is not its host's own is hosted by whoever is told to" *
          doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Hosts hosts(1);
  // Everything sent to these addresses arrives here, as through a router, but no interface has them.
  REQUIRE(run(hosts.on(0, {"ip", "route", "add", "local", "10.99.0.0/24", "dev", "lo"})).exit_code == 0);
  const auto node = [&](const std::string& is_host) {
    return hosts.on(0, {kDtrun, "--nnodes", "2", "--rdzv_endpoint", "10.99.0.5:29400", "--rdzv_id", "router",
                        "--rdzv_conf", "join_timeout=30,is_host=" + is_host, "--", "/bin/true"});
  };
  Process first(node("1")), second(node("0"));
  const Ended a = first.end(), b = second.end();
  CHECK_MESSAGE(a.exit_code == 0, a.err);
  CHECK_MESSAGE(b.exit_code == 0, b.err);
}

TEST_CASE("a full disk ends no training that goes on without; what is missing is told, and made up for" *
          doctest::test_suite("namespaces")) {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Hosts hosts(1);
  const std::vector<std::string> job{"train.max_steps=40", "train.save_steps=5", "model.channels=[10, 20]"};
  Folder elsewhere;
  REQUIRE(run(training(standalone(1), elsewhere / "out", job)).exit_code == 0);
  const std::string whole = model(elsewhere / "out");
  const auto command = [&](const std::string& name) {
    return hosts.on(0, training(standalone(2), hosts.directory() / name, job));
  };

  // Room for a checkpoint and the model.
  hosts.resize_disk(0, "380k");
  const Ended tight = run(command("tight"));
  CHECK_MESSAGE(tight.exit_code == 0, tight.err);
  CHECK_MESSAGE(contains(tight.err, "a checkpoint was not saved: cannot write"), tight.err);
  CHECK_MESSAGE(contains(tight.err, "No space left on device; free some space or choose another output_dir"),
                tight.err);
  CHECK(model(hosts.seen_from_here(0, "tight")) == whole);
  std::filesystem::remove_all(hosts.seen_from_here(0, "tight"));

  // Room for a checkpoint alone.
  hosts.resize_disk(0, "260k");
  const std::filesystem::path seen = hosts.seen_from_here(0, "full");
  const Ended full = run(command("full"));
  CHECK_MESSAGE(full.exit_code == 74, full.err);
  CHECK_MESSAGE(contains(full.err, "model.safetensors"), full.err);
  CHECK_MESSAGE(contains(full.err, "No space left on device; free some space or choose another output_dir"),
                full.err);
  CHECK(has_checkpoint(seen));  // that of step 5, or what the other worker could save before it ended
  CHECK_FALSE(std::filesystem::exists(seen / "model.safetensors"));

  hosts.resize_disk(0, "8m");
  const Ended again = run(command("full"));
  CHECK_MESSAGE(again.exit_code == 0, again.err);
  CHECK_MESSAGE(contains(again.err, "resumed from step "), again.err);
  CHECK(model(seen) == whole);
}

TEST_CASE(
    "a second run in an output directory that is in use is refused, and the first one is not disturbed") {
  Folder directory;
  const std::vector<std::string> job{"train.save_steps=20"};
  Process first(endless_training(standalone(1), directory / "out", job));
  REQUIRE(trains(directory / "out", 5));
  first.signal(SIGSTOP);
  const pid_t worker = only_worker(first);
  kill(worker, SIGSTOP);
  const std::string metrics = read_if_there(directory / "out/metrics.jsonl");
  const Ended second = run(endless_training(standalone(2), directory / "out", job));
  CHECK_MESSAGE(second.exit_code == 73, second.err);
  CHECK_MESSAGE(contains(second.err, (directory / "out").string() + " is in use"), second.err);
  CHECK_MESSAGE(contains(second.err, std::to_string(worker)), second.err);
  CHECK_MESSAGE(!contains(second.err, "the job failed"), second.err);  // no worker was started for that
  // One that several nodes may join finds out by its worker, and leaves no word in the first one's history.
  const std::string events = read_if_there(directory / "out/events.jsonl");
  const Ended third =
      run(endless_training({"--nnodes", "1:2", "--rdzv_endpoint", "127.0.0.1:" + std::to_string(free_port()),
                            "--rdzv_conf", "last_call_timeout=1"},
                           directory / "out", job));
  CHECK_MESSAGE(third.exit_code == 73, third.err);
  CHECK_MESSAGE(contains(third.err, "is in use"), third.err);
  CHECK(!events.empty());
  CHECK(read_if_there(directory / "out/events.jsonl") == events);
  CHECK_FALSE(std::filesystem::exists(directory / "out/report.json"));
  CHECK(read_if_there(directory / "out/metrics.jsonl") == metrics);
  kill(worker, SIGCONT);
  first.signal(SIGCONT);
  CHECK(trains(directory / "out", steps_done(directory / "out") + 10));
  end_as_calm({&first}, {directory / "out"});
}

}  // namespace dtrun::trouble_test
