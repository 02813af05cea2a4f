// A layer of a model of one's own (model.type "layers"): a module of PyTorch with its arguments.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "worker/config/choices.h"

namespace dtrun::worker {

enum class LayerType : std::uint8_t {
  kConv2d,
  kMaxPool2d,
  kAdaptiveAvgPool2d,
  kLinear,
  kLayerNorm,
  kBatchNorm2d,
  kBatchNorm1d,
  kReLU,
  kGELU,
  kDropout,
  kFlatten,
  kAdd,  // no module: the sum of two layers' outputs
};
template <>
inline constexpr auto kNamesOf<LayerType> = std::to_array<std::string_view>(
    {"Conv2d", "MaxPool2d", "AdaptiveAvgPool2d", "Linear", "LayerNorm", "BatchNorm2d", "BatchNorm1d", "ReLU",
     "GELU", "Dropout", "Flatten", "add"});

enum class Approximation : std::uint8_t { kTanh };
template <>
inline constexpr auto kNamesOf<Approximation> = std::to_array<std::string_view>({"tanh"});

// Arguments have PyTorch's names and defaults; a type has some of them (worker/config/layers.cc).
struct Layer {
  LayerType type = LayerType::kFlatten;
  std::string name = {};                  // prefix of its parameters' names
  std::optional<std::string> input = {};  // the layer that it reads; the one before it unless given
  std::string add = {};                   // add: the layer whose output it adds
  int out_channels = 0;                   // Conv2d
  int kernel_size = 0;                    // Conv2d, MaxPool2d
  std::optional<int> stride = {};         // Conv2d: 1 unless given; MaxPool2d: kernel_size
  int padding = 0;                        // Conv2d, MaxPool2d
  bool bias = true;                       // Conv2d, Linear
  int output_size = 1;                    // AdaptiveAvgPool2d
  std::optional<int> out_features = {};   // Linear; the data's classes unless given
  // Conv2d's in_channels, Linear's in_features, LayerNorm's normalized_shape, BatchNorm's num_features:
  // follow from the data, and are compared with it where they are given.
  std::optional<int> in = {};
  std::optional<Approximation> approximate = {};  // GELU
  double p = 0.5;                                 // Dropout
  double eps = 1e-5, momentum = 0.1;              // BatchNorm
};

}  // namespace dtrun::worker
