// Whole vectors: the bits of the CPU's arithmetic.
#include "worker/device/cuda/kernels/vector.h"

#include "tests/worker/device/cuda/kernels/run.h"
#include "worker/vector/arithmetic.h"
#include "worker/vector/loops.h"

namespace dtrun::vector_test {

using namespace dtrun::worker;
using namespace dtrun::worker::cuda::testing;

namespace {

constexpr std::size_t kSizes[] = {1, 3, 7, 64, 100, 257, 5001};

bool bits_are(const Memory<float>& got, const std::vector<float>& wanted) {
  return got.size() == wanted.size() &&
         std::memcmp(got.host(), wanted.data(), wanted.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("adding and dividing give the CPU's bits") {
  for (const std::size_t size : kSizes)
    for (const std::size_t shift : {0, 1}) {
      CAPTURE(size);
      CAPTURE(shift);
      std::vector<float> left = random_values<float>(1, size), right = random_values<float>(2, size);
      for (const float count : {3.0f, 64.0f, 65536.0f, 1.0f, 100003.0f}) {
        CAPTURE(count);
        const auto [sum, mean] = in_all_orders([&] {
          std::tuple all{Memory<float>(left, shift), Memory<float>(right, shift)};
          const Memory<float> other(right, shift);
          cuda::accumulate(nullptr, std::get<0>(all).data(), other.data(), size);
          cuda::mean(nullptr, std::get<1>(all).data(), size, count);
          synchronize();
          return all;
        });
        std::vector<float> wanted(size), divided = right;
        vector::loops().add(left.data(), right.data(), wanted.data(), size);
        vector::loops().divide(divided.data(), count, divided.data(), size);
        CHECK(bits_are(sum, wanted));
        CHECK(bits_are(mean, divided));
      }
    }
}

TEST_CASE("the tree's sum of any leaves and ranks has the CPU's bits") {
  const std::unique_ptr<Arithmetic> cpu = make_cpu_arithmetic();
  const std::unique_ptr<Stream> stream = cpu->make_stream();
  const std::size_t size = 259;
  for (const std::int64_t leaves : {1, 2, 3, 5, 8, 13, 64, 255, 1000})
    for (const int world : {1, 2, 3, 7, 16}) {
      if (world > leaves) continue;
      CAPTURE(leaves);
      CAPTURE(world);
      std::vector<Block> blocks;
      for (int rank = 0; rank < world; ++rank) {
        const LeafRange range = leaves_of_rank(leaves, rank, world);
        for (const Block& block : blocks_of(range.begin, range.end, leaves)) blocks.push_back(block);
      }
      const TreeSum sum = plan_sum(blocks, leaves);
      REQUIRE(sum.inputs <= cuda::kTreeInputs);
      std::vector<std::vector<float>> values;
      for (int i = 0; i < sum.inputs; ++i) values.push_back(random_values<float>(i, size));
      for (const std::size_t shift : {0, 1}) {
        std::vector<Memory<float>> held;
        for (const std::vector<float>& one : values) held.emplace_back(one, shift);
        std::vector<const float*> inputs, inputs_there;
        for (const std::vector<float>& one : values) inputs.push_back(one.data());
        for (const Memory<float>& one : held) inputs_there.push_back(one.data());
        std::vector<float> wanted(size);
        cpu->sum(*stream, sum, inputs, wanted.data(), size);
        const auto [out] = in_all_orders([&] {
          std::tuple all{Memory<float>(size, shift)};
          cuda::tree_sum(nullptr, sum, inputs_there, std::get<0>(all).data(), size);
          synchronize();
          return all;
        });
        CHECK(bits_are(out, wanted));
      }
    }
}

TEST_CASE("a chain of ever smaller blocks is summed, though all but the last two wait for their neighbour") {
  const std::int64_t leaves = 1 << 14;
  const std::size_t size = 9;
  std::vector<Block> blocks = blocks_of(0, leaves - 1, leaves);
  blocks.push_back({leaves - 1, 0});
  const TreeSum sum = plan_sum(blocks, leaves);
  REQUIRE(sum.temporaries == 14);
  std::vector<std::vector<float>> values;
  std::vector<Memory<float>> held;
  std::vector<const float*> inputs, inputs_there;
  for (int i = 0; i < sum.inputs; ++i) values.push_back(random_values<float>(i, size));
  for (const std::vector<float>& one : values) inputs.push_back(one.data()), held.emplace_back(one);
  for (const Memory<float>& one : held) inputs_there.push_back(one.data());
  std::vector<float> wanted(size);
  const std::unique_ptr<Arithmetic> cpu = make_cpu_arithmetic();
  cpu->sum(*cpu->make_stream(), sum, inputs, wanted.data(), size);
  Memory<float> out(size);
  cuda::tree_sum(nullptr, sum, inputs_there, out.data(), size);
  synchronize();
  CHECK(bits_are(out, wanted));
}

TEST_CASE("as many single leaves as one launch takes are summed") {
  const std::size_t leaves = cuda::kTreeInputs, size = 8;
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < leaves; ++i) blocks.push_back({static_cast<std::int64_t>(i), 0});
  const Memory<float> ones(std::vector<float>(size, 1.0f));
  const std::vector<const float*> inputs(leaves, ones.data());
  Memory<float> out(size);
  cuda::tree_sum(nullptr, plan_sum(blocks, static_cast<std::int64_t>(leaves)), inputs, out.data(), size);
  synchronize();
  CHECK(out.values() == std::vector<float>(size, static_cast<float>(leaves)));
}

TEST_CASE("the norm is the root of the means' squares, the same in every order") {
  for (const std::size_t size : {0, 1, 3, 257, 5001, 1200000})
    for (const std::size_t shift : {0, 1}) {
      CAPTURE(size);
      const std::vector<float> x = random_values<float>(1, size);
      const float count = 48;
      double wanted = 0;
      for (const float value : x) wanted += static_cast<double>(value / count) * (value / count);
      const auto once = [&] {
        const Memory<float> in(x, shift), divisor(std::vector<float>{count});
        std::tuple all{Memory<double>(cuda::kSquareNormWorkspace), Memory<double>(1)};
        cuda::square_norm(nullptr, in.data(), size, divisor.data(), std::get<0>(all).data(),
                          std::get<1>(all).data());
        synchronize();
        return all;
      };
      const auto all = size > 100000 ? once() : in_all_orders(once);
      CHECK(*std::get<1>(all).host() == doctest::Approx(wanted).epsilon(1e-12));
    }
}

TEST_CASE("an optimizer's pass has the bits of the CPU's mean, clipping and step, and copies them as bf16") {
  for (const std::size_t size : kSizes)
    for (const std::size_t shift : {0, 1})
      for (const float count : {32.0f, 48.0f})
        for (const float clip : {1.0f, 0.37f})
          for (const bool copied : {true, false}) {
            CAPTURE(size);
            CAPTURE(shift);
            CAPTURE(count);
            CAPTURE(clip);
            const std::vector<float> sum = random_values<float>(1, size, 40),
                                     old = random_values<float>(2, size),
                                     first = random_values<float>(3, size);
            std::vector<float> second = random_values<float>(4, size), gradient = sum;
            for (float& value : second) value = std::abs(value);
            vector::loops().divide(gradient.data(), count, gradient.data(), size);
            if (clip != 1) vector::loops().scale(gradient.data(), clip, gradient.data(), size);
            const cuda::GradientScale scale{.count = count, .clip = clip};
            const Memory<float> in(sum, shift);
            // run(parameters, slots, copy) on both sides.
            const auto check = [&](const auto& run, const auto& of_cpu) {
              const auto [parameters, a, b, copy] = in_all_orders([&] {
                std::tuple all{Memory<float>(old, shift), Memory<float>(first, shift),
                               Memory<float>(second, shift), Memory<bf16>(size, shift)};
                run(std::get<0>(all).data(), std::get<1>(all).data(), std::get<2>(all).data(),
                    copied ? std::get<3>(all).data() : nullptr);
                synchronize();
                return all;
              });
              std::vector<float> wanted = old, wanted_a = first, wanted_b = second;
              of_cpu(wanted.data(), wanted_a.data(), wanted_b.data());
              CHECK(bits_are(parameters, wanted));
              CHECK(bits_are(a, wanted_a));
              CHECK(bits_are(b, wanted_b));
              std::size_t wrong = 0;
              for (std::size_t i = 0; copied && i < size; ++i) wrong += copy[i] != value_of(bf16(wanted[i]));
              for (std::size_t i = 0; !copied && i < size; ++i) wrong += !std::isnan(copy[i]);
              CHECK(wrong == 0);
            };
            const SgdRule plain{.rate = 0.1f, .weight_decay = 0.01f};
            check([&](float* p, float*, float*,
                      bf16* copy) { cuda::sgd(nullptr, plain, scale, nullptr, 0, in.data(), p, copy, size); },
                  [&](float* p, float*, float*) { vector::loops().sgd(plain, gradient.data(), p, size); });
            for (const bool nesterov : {false, true}) {
              const SgdRule rule{.rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = nesterov};
              check(
                  [&](float* p, float* a, float*, bf16* copy) {
                    cuda::sgd_momentum(nullptr, rule, scale, nullptr, 0, in.data(), p, a, copy, size);
                  },
                  [&](float* p, float* a, float*) {
                    vector::loops().sgd_momentum(rule, gradient.data(), p, a, size);
                  });
            }
            const AdamWRule rule{.keep = 0.999f,
                                 .step_size = 1e-3f,
                                 .root_correction = 0.3f,
                                 .beta1 = 0.9f,
                                 .rest1 = 0.1f,
                                 .beta2 = 0.95f,
                                 .rest2 = 0.05f,
                                 .epsilon = 1e-8f};
            // Ranges that begin and end anywhere, touch, and are empty.
            const std::vector<std::uint64_t> boundaries{0,        size / 5,     size / 5,        size / 3,
                                                        size / 2, size / 2 + 1, size - size / 8, size};
            const Memory<std::uint64_t> boundaries_there(boundaries);
            for (const std::size_t ranges : {std::size_t{0}, std::size_t{4}})
              check(
                  [&](float* p, float* a, float* b, bf16* copy) {
                    cuda::adamw(nullptr, rule, scale, boundaries_there.data(), ranges, in.data(), p, a, b,
                                copy, size);
                  },
                  [&](float* p, float* a, float* b) {
                    for (std::size_t i = 0; i < size; ++i) {
                      bool decays = false;
                      for (std::size_t k = 0; k < ranges; ++k)
                        decays = decays || (i >= boundaries[2 * k] && i < boundaries[2 * k + 1]);
                      vector::loops().adamw(rule, decays ? rule.keep : 1.0f, gradient.data() + i, p + i,
                                            a + i, b + i, 1);
                    }
                  });
          }
}

}  // namespace dtrun::vector_test
