#include <compare>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <unordered_map>

#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/device/cpu/onednn/compat.h"
#include "worker/device/cpu/onednn/matmul.h"

namespace dtrun::worker::onednn {
namespace {

Desc matrix(std::int64_t height, std::int64_t width, bool transposed, std::int64_t stride,
            dnnl::memory::data_type type) {
  const dnnl::memory::dims strides{transposed ? 1 : stride, transposed ? stride : 1};
  return {{height, width}, type, strides};
}

}  // namespace

struct Bf16Multiplier::Compiled {
  // A matmul without the addresses of its matrices.
  struct MatmulKey {
    bool a_transposed, b_transposed, bias, add;
    std::int64_t m, n, k, a_stride, b_stride, c_stride;
    float alpha;
    auto operator<=>(const MatmulKey&) const = default;
  };

  // A primitive with its arguments, whose addresses each run sets.
  struct PreparedMatmul {
    PreparedMatmul(const dnnl::engine& engine, const MatmulKey& s) {
      constexpr auto kBf16 = dnnl::memory::data_type::bf16, kFp32 = dnnl::memory::data_type::f32;
      const Desc a = matrix(s.m, s.k, s.a_transposed, s.a_stride, kBf16),
                 b = matrix(s.k, s.n, s.b_transposed, s.b_stride, kBf16),
                 c = matrix(s.m, s.n, false, s.c_stride, kFp32),
                 bias = s.bias ? matrix(1, s.n, false, s.n, kFp32) : Desc();
      const auto description = onednn::matmul(engine, a, b, bias, c, s.alpha, s.add);
      primitive = dnnl::matmul(description);
      scratchpad_floats = (description.scratchpad_desc().get_size() + sizeof(float) - 1) / sizeof(float);
      scratchpad = {description.scratchpad_desc(), engine, nullptr};
      left = {a, engine, nullptr}, right = {b, engine, nullptr}, out = {c, engine, nullptr};
      arguments = {{DNNL_ARG_SRC, left},
                   {DNNL_ARG_WEIGHTS, right},
                   {DNNL_ARG_DST, out},
                   {DNNL_ARG_SCRATCHPAD, scratchpad}};
      if (!s.bias) return;
      row = {bias, engine, nullptr};
      arguments.emplace(DNNL_ARG_BIAS, row);
    }
    dnnl::matmul primitive;
    dnnl::memory left, right, out, row, scratchpad;
    std::size_t scratchpad_floats = 0;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<MatmulKey, PreparedMatmul> matmuls;
  Buffer scratchpad;  // of the largest size that a matmul asked for
};

Bf16Multiplier::Bf16Multiplier() : compiled_(std::make_unique<Compiled>()) {}
Bf16Multiplier::~Bf16Multiplier() = default;

void Bf16Multiplier::multiply(const Matmul<Bf16>& p) try {
  if (p.m == 0 || p.n == 0) return;
  const Compiled::MatmulKey shape{.a_transposed = p.a_transposed,
                                  .b_transposed = p.b_transposed,
                                  .bias = p.bias != nullptr,
                                  .add = p.beta != 0,
                                  .m = p.m,
                                  .n = p.n,
                                  .k = p.k,
                                  .a_stride = p.a_stride,
                                  .b_stride = p.b_stride,
                                  .c_stride = p.c_stride,
                                  .alpha = p.alpha};
  auto found = compiled_->matmuls.find(shape);
  if (found == compiled_->matmuls.end())
    found = compiled_->matmuls.try_emplace(shape, compiled_->engine, shape).first;
  Compiled::PreparedMatmul& matmul = found->second;
  // oneDNN takes all memory as writable, but does not write to its sources.
  matmul.left.set_data_handle(const_cast<Bf16*>(p.a));
  matmul.right.set_data_handle(const_cast<Bf16*>(p.b));
  matmul.out.set_data_handle(p.c);
  if (p.bias != nullptr) matmul.row.set_data_handle(const_cast<float*>(p.bias));
  if (compiled_->scratchpad.size() < matmul.scratchpad_floats)
    compiled_->scratchpad = Buffer(matmul.scratchpad_floats);
  if (matmul.scratchpad_floats > 0) matmul.scratchpad.set_data_handle(compiled_->scratchpad.data());
  matmul.primitive.execute(compiled_->stream, matmul.arguments);
} catch (const dnnl::error& error) {
  throw WorkerError(kExitSoftware, "oneDNN cannot multiply bf16 matrices of " + std::to_string(p.m) + "x" +
                                       std::to_string(p.k) + " and " + std::to_string(p.k) + "x" +
                                       std::to_string(p.n) + ": " + error.what());
}

}  // namespace dtrun::worker::onednn
