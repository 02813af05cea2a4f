// The messages to people while they wait.
#include "agent/core/supervisor/notices.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/agent/core/supervisor/scenario.h"

namespace dtrun::agent::test::notices_test {

TEST_CASE("who waits for other nodes at an address of this machine alone is told so") {
  for (const auto& [endpoint, told] :
       std::vector<std::pair<std::string, bool>>{{"localhost:29400", true},
                                                 {"127.0.0.1:29400", true},
                                                 {"[::1]:29400", true},
                                                 {"localhost.lan:29400", false}}) {
    Scenario s(builtin());
    s.state.connection.endpoint = endpoint;
    s.happens(event::Connected{});
    s.happens(event::JoinAck{"10.0.0.2", 60000});
    s.happens(waiting(1, 2));
    CHECK((s.printed.back().find("only agents of this machine can join") != std::string::npos) == told);
  }
}

TEST_CASE(
    "a node that a launcher starts together with the others says that it waits only when that takes long") {
  Scenario s(builtin());
  s.state.settings.begin_together = true;
  s.happens(event::Connected{});
  s.happens(event::JoinAck{"10.0.0.2", 60000});
  s.happens(waiting(1, 3));
  s.happens(waiting(2, 3));
  CHECK(s.printed.empty());
  s.passes(5000);
  REQUIRE(!s.printed.empty());
  CHECK(s.printed.back().find("joined 2 of 3 nodes") != std::string::npos);
}

}  // namespace dtrun::agent::test::notices_test
