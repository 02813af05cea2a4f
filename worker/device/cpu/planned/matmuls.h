// The matmuls of a planned lane, in fp32, or with inputs rounded to bf16 and sums in fp32. The lane is a
// template over the class: our kernels, or oneDNN's for AMX. Both classes read the flat parameters of
// parameters_changed(), which the caller keeps, and see a matrix of fp32 values through operand(): the values
// themselves, or a rounded copy of them, which stays valid until operand() is called with the same number.
// kept_operand() makes no copy of values that one was made of since forget().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "worker/base/buffer.h"
#include "worker/base/error.h"
#include "worker/config/bf16.h"
#include "worker/device/cpu/matmul/multiplier.h"
#include "worker/device/cpu/onednn/matmul.h"
#include "worker/device/cpu/planned/kernels.h"

namespace dtrun::worker::planned {

// Names of the copies that a lane uses at a time.
enum Operand { kLeft, kRight, kScores, kScoreGradients, kOperands };

class KernelMatmuls {
 public:
  using Element = float;
  // Throws WorkerError (EX_CONFIG) where this processor cannot.
  explicit KernelMatmuls(bool bf16)
      : multiplier_(bf16 ? matmul::Multiplier(bf16_kernels()) : matmul::Multiplier()) {}
  explicit KernelMatmuls(const matmul::Kernels& kernels) : multiplier_(kernels) {}
  void parameters_changed(const float* flat, std::size_t) { weights_ = flat; }
  const float* weight(std::size_t offset) const { return weights_ + offset; }
  const float* operand(Operand, const float* values, std::size_t) const { return values; }
  const float* kept_operand(Operand, const float* values, std::size_t) const { return values; }
  void forget() {}
  void multiply(const matmul::Matmul<float>& matmul) { multiplier_.multiply(matmul); }
  void multiply_gathered(const matmul::GatheredMatmul& matmul) { multiplier_.multiply_gathered(matmul); }
  const matmul::Kernels& kernels() const { return multiplier_.kernels(); }

 private:
  static const matmul::Kernels& bf16_kernels() {
    const matmul::Kernels* const kernels = matmul::bf16_kernels();
    return kernels != nullptr ? *kernels : throw WorkerError(kExitConfig, bf16_refusal());
  }

  matmul::Multiplier multiplier_;
  const float* weights_ = nullptr;
};

// REQUIRES: onednn::has_amx().
class AmxMatmuls {
 public:
  using Element = matmul::Bf16;
  explicit AmxMatmuls(bool) { onednn::use_one_thread(); }
  void parameters_changed(const float* flat, std::size_t count) { round(flat, count, weights_); }
  const Element* weight(std::size_t offset) const { return values_of(weights_) + offset; }
  const Element* operand(Operand number, const float* values, std::size_t count) {
    return round(values, count, copies_[number]);
  }
  const Element* kept_operand(Operand number, const float* values, std::size_t count) {
    const auto kept = std::ranges::find(kept_, values);
    if (kept != kept_.end()) return values_of(copies_[kept - kept_.begin()]);
    kept_[number] = values;
    return operand(number, values, count);
  }
  void forget() { kept_ = {}; }
  void multiply(const matmul::Matmul<Element>& matmul) { multiplier_.multiply(matmul); }

 private:
  static Element* values_of(const Buffer& buffer) { return reinterpret_cast<Element*>(buffer.data()); }
  static const Element* round(const float* values, std::size_t count, Buffer& to) {
    const std::size_t floats = (count + 1) / 2;
    if (to.size() < floats) to = Buffer(floats);
    kernels().to_bf16(count, values, values_of(to));
    return values_of(to);
  }

  onednn::Bf16Multiplier multiplier_;
  Buffer weights_;
  std::array<Buffer, kOperands> copies_;
  std::array<const float*, kOperands> kept_{};  // what copies_ are of
};

}  // namespace dtrun::worker::planned
