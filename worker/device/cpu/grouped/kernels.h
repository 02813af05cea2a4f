// The loops of the CPU device, written for samples side by side: 16 samples make a group, and an activation
// is [group][channel][row][column][16 samples]. So a vector register holds one value of 16 samples, no layer
// has a channel count or width that leaves part of a vector idle, and no sample's value depends on its
// neighbours. The same source (kernels_impl.h) is compiled once per instruction set and picked when the
// program starts. Each sum is built in the same order for every vector width; builds with fused multiply-add
// (AVX2, AVX-512) give the same bits.
#pragma once

#include <cstddef>

#include "worker/base/instruction_sets.h"

namespace dtrun::worker::grouped {

inline constexpr int kGroup = 16;  // samples

struct ConvShape {
  int in_channels, in_height, in_width;
  int out_channels, out_height, out_width;
  int kernel;  // stride 1, no padding
};

struct PoolShape {
  int channels, in_height, in_width;
  int out_height, out_width;
  int kernel;  // = stride
};

struct LinearShape {
  int in_features, out_features;
};

// Features in a row of linear_backward_weights' scratch.
constexpr std::size_t padded_features(int features) {
  return (static_cast<std::size_t>(features) + kGroup - 1) / kGroup * kGroup;
}

// Activations and their gradients are 64-byte aligned; parameters and their gradients need not be, and have
// PyTorch's layouts. Functions without `groups` work on one group.
struct Kernels {
  const char* instruction_set;

  // relu: out = max(out, 0).
  void (*conv_forward)(const ConvShape&, const float* in, const float* weight, const float* bias, bool relu,
                       float* out);
  // Overwrites in_gradient.
  void (*conv_backward_data)(const ConvShape&, const float* out_gradient, const float* weight,
                             float* in_gradient);
  // Overwrites both gradients with the sum over all samples of all groups.
  void (*conv_backward_weights)(const ConvShape&, int groups, const float* in, const float* out_gradient,
                                float* weight_gradient, float* bias_gradient);

  void (*pool_forward)(const PoolShape&, const float* in, float* out);
  // The first largest element of a window gets its gradient. in_is_relu: none goes to an element <= 0.
  void (*pool_backward)(const PoolShape&, const float* in, const float* out, const float* out_gradient,
                        bool in_is_relu, float* in_gradient);

  void (*linear_forward)(const LinearShape&, const float* in, const float* weight, const float* bias,
                         bool relu, float* out);
  void (*linear_backward_data)(const LinearShape&, const float* out_gradient, const float* weight,
                               float* in_gradient);
  // in_rows: scratch, 64-byte aligned, of groups*kGroup rows of padded_features floats.
  void (*linear_backward_weights)(const LinearShape&, int groups, const float* in, const float* out_gradient,
                                  float* in_rows, float* weight_gradient, float* bias_gradient);

  // rows: [kGroup][values] <-> columns: [values][kGroup]. Rows beyond `samples` are not read; their columns
  // are 0.
  void (*rows_to_group)(int samples, std::size_t values, const float* rows, float* columns);
  void (*group_to_rows)(std::size_t values, const float* columns, float* rows);
};

// The fastest set that this processor runs.
const Kernels& kernels();

// All sets that this processor runs, the fastest first; so that tests can compare them.
InstructionSets<Kernels> available_kernels();

}  // namespace dtrun::worker::grouped

namespace dtrun::worker {

template <>
const grouped::Kernels Copies<grouped::Kernels>::baseline;
template <>
const grouped::Kernels Copies<grouped::Kernels>::avx2;
template <>
const grouped::Kernels Copies<grouped::Kernels>::avx512;

}  // namespace dtrun::worker
