// Rounded weights: the bits of the CPU's.
#include "worker/device/cuda/kernels/quantize.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/quantize/matrices.h"

namespace dtrun::quantize_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

// A program that is one linear layer of no bias.
Program linear(std::size_t rows, std::size_t columns, bool in_first) {
  Program program;
  program.size = rows * columns;
  program.parameters.resize(1);
  Linear layer{};
  layer.in_features = static_cast<int>(columns), layer.out_features = static_cast<int>(rows);
  layer.in_first = in_first;
  program.nodes.emplace_back().op = layer;
  return program;
}

}  // namespace

TEST_CASE("a matrix is rounded to the CPU's bits, in either layout, with odd edges") {
  for (const auto& size : {std::pair<std::size_t, std::size_t>{1, 1}, {3, 32}, {33, 70}, {9, 257}})
    for (const bool in_first : {false, true})
      for (const Quantization how : {Quantization::kQ8_0, Quantization::kQ4_0}) {
        const std::size_t rows = size.first, columns = size.second;
        CAPTURE(rows);
        CAPTURE(columns);
        CAPTURE(in_first);
        const Program program = linear(rows, columns, in_first);
        std::vector<float> weights = random_values<float>(1, program.size), wanted(program.size);
        for (std::size_t i = 0; i < weights.size(); i += 7) weights[i] = 0;
        if (rows == 9) std::fill_n(weights.begin(), weights.size() / 2, 0.0f);  // blocks of zeros
        if (rows == 3) weights[5] = -2, weights[20] = 2;  // the first of two that are as large
        round_matrices(program, how, weights.data(), wanted.data());
        std::vector<bf16> narrow(wanted.size());
        std::ranges::transform(wanted, narrow.begin(), __float2bfloat16_rn);
        const cuda::BlockedMatrix matrix{
            .rows = rows, .columns = columns, .in_first = in_first, .four_bits = how == Quantization::kQ4_0};
        const auto [got, rounded] = in_all_orders([&] {
          Memory<float> in(weights, 1);
          std::tuple all{Memory<float>(weights.size()), Memory<bf16>(weights.size())};
          cuda::round_matrix(nullptr, matrix, in.data(), std::get<0>(all).data());
          cuda::round_matrix(nullptr, matrix, in.data(), std::get<1>(all).data());
          synchronize();
          return all;
        });
        CHECK(std::memcmp(got.host(), wanted.data(), wanted.size() * sizeof(float)) == 0);
        CHECK(std::memcmp(rounded.host(), narrow.data(), narrow.size() * sizeof(bf16)) == 0);
      }
}

TEST_CASE("what is not finite stays so") {
  std::vector<float> weights(64, 1.0f);
  weights[3] = std::nanf(""), weights[40] = std::numeric_limits<float>::infinity();
  const auto [got] = in_all_orders([&] {
    Memory<float> in(weights);
    std::tuple out{Memory<float>(weights.size())};
    cuda::round_matrix(nullptr, {.rows = 2, .columns = 32, .four_bits = true}, in.data(),
                       std::get<0>(out).data());
    synchronize();
    return out;
  });
  CHECK(std::isnan(got.host()[3]));
  CHECK(std::isfinite(got.host()[4]));
  CHECK(std::isnan(got.host()[40]));  // as on the CPU: infinity over an infinite scale
}

}  // namespace dtrun::quantize_test
