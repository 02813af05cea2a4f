// Sums of columns against sums in fp64.
#include "worker/device/cuda/kernels/columns.h"

#include "tests/worker/device/cuda/kernels/run.h"

namespace dtrun::columns_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

TEST_CASE_TEMPLATE("columns are summed: of few rows and of many, narrow and wide", T, DTRUN_ACTIVATIONS) {
  struct Shape {
    std::size_t rows, width, shift;
  };
  for (const Shape& s : {Shape{1, 1, 0},
                         {3, 7, 0},
                         {0, 5, 0},
                         {64, 100, 0},
                         {259, 3, 0},
                         {1000, 64, 0},
                         {300, 264, 0},
                         {300, 264, 1},
                         {4, 20000, 0}})
    for (const bool add : {false, true}) {
      CAPTURE(s.rows);
      CAPTURE(s.width);
      CAPTURE(s.shift);
      CAPTURE(add);
      const std::vector<T> x = random_values<T>(1, s.rows * s.width);
      const std::vector<float> old = random_values<float>(2, s.width);
      std::vector<double> wanted(s.width);
      for (std::size_t i = 0; i < s.width; ++i) {
        wanted[i] = add ? old[i] : 0.0;
        for (std::size_t r = 0; r < s.rows; ++r) wanted[i] += value_of(x[r * s.width + i]);
      }
      const auto [sum, workspace] = in_all_orders([&] {
        const Memory<T> in(x, s.shift);
        std::tuple all{add ? Memory<float>(old, 1) : Memory<float>(s.width, 1),
                       Memory<float>(cuda::sum_rows_workspace(s.rows, s.width))};
        cuda::sum_rows<T>(nullptr, s.rows, s.width, s.width, in.data(), add, std::get<0>(all).data(),
                          std::get<1>(all).data());
        synchronize();
        return all;
      });
      check_near(sum, wanted, 1e-6, std::sqrt(static_cast<double>(s.rows)));
    }
}

TEST_CASE("few wide rows need no workspace, and no shape needs much") {
  CHECK(cuda::sum_rows_workspace(64, 1024 * 768) == 0);
  CHECK(cuda::sum_rows_workspace(65536, 768) <= 512 * 768);
  CHECK(cuda::sum_rows_workspace(65536, 50304) <= 4 * 50304);
}

}  // namespace dtrun::columns_test
