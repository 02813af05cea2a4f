#include "proto/core/lost_exits.h"

#include <doctest/doctest.h>
#include <signal.h>

namespace dtrun::lost_exits_test {

TEST_CASE("a failure is not passed on as the loss of a node, and stays a failure") {
  for (const int code :
       {kExitUnavailable, kExitStartAgain, exit_code_of_signal(SIGKILL), exit_code_of_signal(SIGTERM), 255})
    CHECK(exit_code_where_replaced(code) == 1);
  for (const int code : {0, 1, 3, 65, 66, 78, 134, 139, 254}) CHECK(exit_code_where_replaced(code) == code);
}

}  // namespace dtrun::lost_exits_test
