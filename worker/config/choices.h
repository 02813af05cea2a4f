// What the config's options choose from: for each an enum, and beside it the names of its values in their
// order. Parsing, messages, the JSON Schema, the docs and the canonical text all read these tables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrun::worker {

template <typename Choice>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

template <typename T>
concept Choice = kNamesOf<T>
.size() > 0;

template <Choice T>
std::string name_of(T choice) {
  return std::string(kNamesOf<T>[static_cast<std::size_t>(choice)]);
}

enum class DeviceType : std::uint8_t { kAuto, kCpu, kCuda };
template <>
inline constexpr auto kNamesOf<DeviceType> = std::to_array<std::string_view>({"auto", "cpu", "cuda"});

enum class ModelType : std::uint8_t { kConvnet, kMlp, kGpt2, kResnet, kLayers };
template <>
inline constexpr auto kNamesOf<ModelType> = std::to_array<std::string_view>({"convnet", "mlp", "gpt2",
                                                                             "resnet", "layers"});

enum class BlockType : std::uint8_t { kBasic, kBottleneck };
template <>
inline constexpr auto kNamesOf<BlockType> = std::to_array<std::string_view>({"basic", "bottleneck"});

enum class StemType : std::uint8_t { kImagenet, kCifar };
template <>
inline constexpr auto kNamesOf<StemType> = std::to_array<std::string_view>({"imagenet", "cifar"});

enum class ActivationType : std::uint8_t { kRelu, kGelu };
template <>
inline constexpr auto kNamesOf<ActivationType> = std::to_array<std::string_view>({"relu", "gelu"});

enum class DataType : std::uint8_t {
  kFashionMnist,
  kIdx,
  kTokens,
  kText,
  kCsv,
  kCifar10,
  kCifar100,
  kSynthetic
};
template <>
inline constexpr auto kNamesOf<DataType> = std::to_array<std::string_view>({"fashion_mnist", "idx", "tokens",
                                                                            "text", "csv", "cifar10",
                                                                            "cifar100", "synthetic"});

// The first of Quantization (worker/quantize/blocks.h).
enum class QuantizeAware : std::uint8_t { kInt8, kInt4 };
template <>
inline constexpr auto kNamesOf<QuantizeAware> = std::to_array<std::string_view>({"int8", "int4"});

enum class OptimizerType : std::uint8_t { kSgd, kAdamW };
template <>
inline constexpr auto kNamesOf<OptimizerType> = std::to_array<std::string_view>({"sgd", "adamw"});

// Of the learning rate, as in transformers.
enum class SchedulerType : std::uint8_t {
  kConstant,
  kConstantWithWarmup,
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kCosineWithMinLr,
  kPolynomial,
  kInverseSqrt,
  kWarmupStableDecay,
};
template <>
inline constexpr auto kNamesOf<SchedulerType> = std::to_array<std::string_view>(
    {"constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "cosine_with_min_lr",
     "polynomial", "inverse_sqrt", "warmup_stable_decay"});

// How a learning rate rises or falls.
enum class RampShape : std::uint8_t { kLinear, kCosine, kOneMinusSqrt };
template <>
inline constexpr auto kNamesOf<RampShape> = std::to_array<std::string_view>({"linear", "cosine", "1-sqrt"});

enum class ReductionType : std::uint8_t { kTree, kRing };
template <>
inline constexpr auto kNamesOf<ReductionType> = std::to_array<std::string_view>({"tree", "ring"});

enum class DivergenceAction : std::uint8_t { kStop, kWarn };
template <>
inline constexpr auto kNamesOf<DivergenceAction> = std::to_array<std::string_view>({"stop", "warn"});

// What else gets the metrics, beside metrics.jsonl.
enum class ReportTo : std::uint8_t { kNone, kTensorBoard };
template <>
inline constexpr auto kNamesOf<ReportTo> = std::to_array<std::string_view>({"none", "tensorboard"});

// When something is done; at the end of the run in any case.
enum class IntervalStrategy : std::uint8_t { kSteps, kEpoch, kNo };
template <>
inline constexpr auto kNamesOf<IntervalStrategy> = std::to_array<std::string_view>({"steps", "epoch", "no"});

enum class BestMetric : std::uint8_t { kLoss, kAccuracy };
template <>
inline constexpr auto kNamesOf<BestMetric> = std::to_array<std::string_view>({"loss", "accuracy"});

enum class RecoveryMode : std::uint8_t { kMemory, kCheckpoint };
template <>
inline constexpr auto kNamesOf<RecoveryMode> = std::to_array<std::string_view>({"memory", "checkpoint"});

// A field that is one of these enums, or optionally one, whichever it is.
class ChoiceRef {
 public:
  template <Choice T>
  explicit ChoiceRef(T* field)
      : field_(field),
        names_(kNamesOf<T>),
        get_([](const void* from) -> std::optional<std::size_t> {
          return static_cast<std::size_t>(*static_cast<const T*>(from));
        }),
        set_([](void* to, std::size_t index) { *static_cast<T*>(to) = static_cast<T>(index); }) {}
  template <Choice T>
  explicit ChoiceRef(std::optional<T>* field)
      : field_(field),
        names_(kNamesOf<T>),
        get_([](const void* from) -> std::optional<std::size_t> {
          const auto& choice = *static_cast<const std::optional<T>*>(from);
          return choice ? std::optional(static_cast<std::size_t>(*choice)) : std::nullopt;
        }),
        set_([](void* to, std::size_t index) {
          *static_cast<std::optional<T>*>(to) = static_cast<T>(index);
        }) {}

  std::span<const std::string_view> names() const { return names_; }
  // Its name; none where an optional one is not given.
  std::optional<std::string> get() const {
    const std::optional<std::size_t> index = get_(field_);
    return index ? std::optional(std::string(names_[*index])) : std::nullopt;
  }
  void set(std::size_t index) const { set_(field_, index); }  // of a name

 private:
  void* field_;
  std::span<const std::string_view> names_;
  std::optional<std::size_t> (*get_)(const void*);
  void (*set_)(void*, std::size_t);
};

}  // namespace dtrun::worker
