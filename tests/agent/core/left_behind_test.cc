// The messages about processes that a worker left behind. stop_test.cc tests the end of those processes.
#include "agent/core/left_behind.h"

#include <doctest/doctest.h>

namespace dtrun::left_behind_test {

using namespace dtrun::agent;

TEST_CASE("what is left behind is counted, and three of it are named") {
  CHECK(left_behind_text({"rsync -a ckpt remote:"}, "rank 3") ==
        "1 process that rank 3 left behind (rsync -a ckpt remote:)");
  CHECK(left_behind_text({"a", "b", "c"}, "rank 0") == "3 processes that rank 0 left behind (a, b, c)");
  CHECK(left_behind_text({"a", "b", "c", "d"}, "rank 0") ==
        "4 processes that rank 0 left behind (a, b, c, …)");
}

TEST_CASE("a long script is named by its begin, on one line, and without what a terminal would obey") {
  CHECK(left_behind_text({"sh -c x\ny\tz\rw\x1b[2J"}, "rank 0") ==
        "1 process that rank 0 left behind (sh -c x y z w)");
  const std::string most(60, 'x');
  CHECK(left_behind_text({most}, "rank 0") == "1 process that rank 0 left behind (" + most + ")");
  CHECK(left_behind_text({most + "x"}, "rank 0") == "1 process that rank 0 left behind (" + most + "…)");
}

}  // namespace dtrun::left_behind_test
