#include "agent/health/last_operations.h"

#include <doctest/doctest.h>

namespace dtrun::last_operations_test {

using namespace dtrun::agent;

TEST_CASE("operations are one JSON object a line, with the wall time at which each began") {
  const Operation wait{.generation = 1,
                       .step = 117,
                       .kind = Operation::Kind::kReceive,
                       .state = Operation::State::kWaits,
                       .bucket = 2,
                       .round = 0,
                       .peer = 3,
                       .began = 2'000'000'000};
  const Operation sent{.generation = 1,
                       .step = 117,
                       .kind = Operation::Kind::kSend,
                       .bucket = 1,
                       .began = 1'000'000'000,
                       .ended = 1'250'000'000};
  CHECK(
      operations_text({sent, wait}, 12'000'000'000, 1000.0) ==
      "{\"time\":989.0,\"generation\":1,\"step\":117,\"operation\":\"send\",\"bucket\":1,\"state\":\"done\","
      "\"seconds\":0.25}\n"
      "{\"time\":990.0,\"generation\":1,\"step\":117,\"operation\":\"receive\",\"bucket\":2,\"round\":0,"
      "\"peer\":3,\"state\":\"waits\",\"seconds\":10.0}\n");
}

}  // namespace dtrun::last_operations_test
