#include "proto/core/goodput.h"

#include <doctest/doctest.h>

namespace dtrun::goodput_test {

TEST_CASE("goodput is told with the kinds of loss that are worth a number") {
  const Goodput spent{
      .training = 93.44, .redone = 2.5, .loading = 1, .evaluating = 0.049, .down = 63, .steps_redone = 57};
  CHECK(goodput_text(spent) ==
        "goodput 58.4 %: 1 min 33 s training, 2.5 s redone, 1.0 s loading, 1 min 03 s down");
}

}  // namespace dtrun::goodput_test
