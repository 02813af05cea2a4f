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

#define DTRUN_NAMES(Choice, ...) \
  template <>                    \
  inline constexpr auto kNamesOf<Choice> = std::to_array<std::string_view>({__VA_ARGS__})

template <Choice T>
std::string name_of(T choice) {
  return std::string(kNamesOf<T>[static_cast<std::size_t>(choice)]);
}

enum class DeviceType : std::uint8_t { kAuto, kCpu, kCuda };
DTRUN_NAMES(DeviceType, "auto", "cpu", "cuda");

enum class ModelType : std::uint8_t { kConvnet, kMlp, kGpt2, kResnet, kLayers };
DTRUN_NAMES(ModelType, "convnet", "mlp", "gpt2", "resnet", "layers");

enum class BlockType : std::uint8_t { kBasic, kBottleneck };
DTRUN_NAMES(BlockType, "basic", "bottleneck");

enum class StemType : std::uint8_t { kImagenet, kCifar };
DTRUN_NAMES(StemType, "imagenet", "cifar");

enum class ActivationType : std::uint8_t { kRelu, kGelu };
DTRUN_NAMES(ActivationType, "relu", "gelu");

enum class DataType : std::uint8_t {
  kFashionMnist,
  kIdx,
  kTokens,
  kText,
  kCsv,
  kCifar10,
  kCifar100,
  kImageFolder,
  kSynthetic
};
DTRUN_NAMES(DataType, "fashion_mnist", "idx", "tokens", "text", "csv", "cifar10", "cifar100", "image_folder",
            "synthetic");

// Between the fields of a table.
enum class Delimiter : std::uint8_t { kComma, kSemicolon, kTab, kBar };
DTRUN_NAMES(Delimiter, ",", ";", "tab", "|");

// Whether a table's first line has names.
enum class HeaderLine : std::uint8_t { kAuto, kYes, kNo };
DTRUN_NAMES(HeaderLine, "auto", "yes", "no");

// llama.cpp's types of weights (worker/quantize/blocks.h).
enum class Quantization : std::uint8_t { kQ8_0, kQ4_0 };
DTRUN_NAMES(Quantization, "q8_0", "q4_0");

enum class OptimizerType : std::uint8_t { kSgd, kAdamW };
DTRUN_NAMES(OptimizerType, "sgd", "adamw");

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
DTRUN_NAMES(SchedulerType, "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts",
            "cosine_with_min_lr", "polynomial", "inverse_sqrt", "warmup_stable_decay");

// How a learning rate rises or falls.
enum class RampShape : std::uint8_t { kLinear, kCosine, kOneMinusSqrt };
DTRUN_NAMES(RampShape, "linear", "cosine", "1-sqrt");

enum class DivergenceAction : std::uint8_t { kStop, kWarn };
DTRUN_NAMES(DivergenceAction, "stop", "warn");

// What else gets the metrics, beside metrics.jsonl.
enum class ReportTo : std::uint8_t { kNone, kTensorBoard };
DTRUN_NAMES(ReportTo, "none", "tensorboard");

// When something is done; at the end of the run in any case.
enum class IntervalStrategy : std::uint8_t { kSteps, kEpoch, kNo };
DTRUN_NAMES(IntervalStrategy, "steps", "epoch", "no");

enum class BestMetric : std::uint8_t { kLoss, kAccuracy };
DTRUN_NAMES(BestMetric, "loss", "accuracy");

enum class RecoveryMode : std::uint8_t { kMemory, kCheckpoint };
DTRUN_NAMES(RecoveryMode, "memory", "checkpoint");

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
