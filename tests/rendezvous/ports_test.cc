// A coordinator that may be on any of several ports, over real sockets: other listeners there
// are passed over: a program, a coordinator with another key, or one of another run.
#include "tests/support/ports.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/rendezvous/test_agent.h"

namespace dtrun::rendezvous::ports_test {
namespace {

// A port without a listener, or with one that never sends a byte.
class Port {
 public:
  explicit Port(bool listens) : fd_(test::bound_to(0)) { REQUIRE((!listens || listen(fd_, 1) == 0)); }
  ~Port() { close(fd_); }
  Port(const Port&) = delete;
  int number() const { return test::port_of(fd_); }

 private:
  const int fd_;
};

RunSettings run_called(const std::string& run_id) {
  RunSettings run;
  run.run_id = run_id;
  return run;
}

TEST_CASE("the run's own coordinator is found behind a closed port, another key's and another run's") {
  const JobKey key = JobKey::random();
  const Port closed(false);
  const auto unauthenticated = start_server("127.0.0.1", JobKey::random()),
             others = start_server("127.0.0.1", key), ours = start_server("127.0.0.1", key);
  TestAgent other("other", "127.0.0.1", others->port(), kPatience, key);
  other.join(run_called("other"));
  REQUIRE(other.hear(v1::FromCoordinator::kAssignment));
  TestAgent host("host", "127.0.0.1", ours->port(), kPatience, key);
  host.join(run_called("ours"));
  REQUIRE(host.hear(v1::FromCoordinator::kAssignment));

  TestAgent agent("agent", "127.0.0.1", closed.number(), kPatience, key,
                  {unauthenticated->port(), others->port(), ours->port()});
  agent.join(run_called("ours"));
  const std::optional<Connected> met = agent.meet();
  REQUIRE(met);
  CHECK(met->port == ours->port());
}

TEST_CASE("where only others are found, the reason is told, and the coordinator may still come") {
  const JobKey key = JobKey::random();
  const Port closed(false);
  const auto unauthenticated = start_server("127.0.0.1", JobKey::random());
  TestAgent agent("agent", "127.0.0.1", closed.number(), kPatience, key, {unauthenticated->port()});
  const auto told = agent.next<Disconnected>();
  REQUIRE(told);
  CHECK(told->why.exit_code() == kExitNoPermission);
  CHECK_FALSE(told->permanent);
}

}  // namespace
}  // namespace dtrun::rendezvous::ports_test
