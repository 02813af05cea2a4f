// The loops for samples side by side, in the set that this processor runs.
#include "worker/device/cpu/grouped/kernels.h"

#include <doctest/doctest.h>

#include "tests/worker/model/programs.h"
#include "worker/base/buffer.h"

namespace dtrun::kernels_test {

using namespace dtrun::worker;
using namespace dtrun::worker::grouped;

TEST_CASE("of equal largest elements the first gets a window's gradient, and of a ReLU's zeros none") {
  const PoolShape s{1, 2, 2, 1, 1, 2};
  Buffer in(4 * kGroup), out(kGroup), out_gradient(kGroup), in_gradient(4 * kGroup);
  for (int n = 0; n < kGroup; ++n) {
    in.data()[1 * kGroup + n] = in.data()[3 * kGroup + n] = n == 5 ? 0.0f : 2.0f;
    out_gradient.data()[n] = 3.0f;
  }
  for (const bool relu : {true, false}) {
    kernels().pool_forward(s, in.data(), out.data());
    kernels().pool_backward(s, in.data(), out.data(), out_gradient.data(), relu, in_gradient.data());
    for (int n = 0; n < kGroup; ++n) {
      CAPTURE(n);
      const float* g = in_gradient.data() + n;
      CHECK(g[0] == (n == 5 && !relu ? 3.0f : 0.0f));
      CHECK(g[1 * kGroup] == (n == 5 ? 0.0f : 3.0f));
      CHECK(g[2 * kGroup] == 0.0f);
      CHECK(g[3 * kGroup] == 0.0f);
    }
  }
}

TEST_CASE("samples are laid side by side and back; rows that are not there become zeros") {
  const std::size_t values = 5;
  const auto rows = random_values(1, kGroup * values);
  Buffer group(kGroup * values);
  std::vector<float> back(kGroup * values);
  kernels().rows_to_group(kGroup, values, rows.data(), group.data());
  CHECK(group.data()[2 * kGroup + 7] == rows[7 * values + 2]);
  kernels().group_to_rows(values, group.data(), back.data());
  CHECK(back == rows);
  kernels().rows_to_group(3, values, rows.data(), group.data());
  CHECK(group.data()[2 * kGroup + 2] == rows[2 * values + 2]);
  CHECK(group.data()[2 * kGroup + 3] == 0.0f);
}

}  // namespace dtrun::kernels_test
