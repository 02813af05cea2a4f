// A model as data: nodes over numbered values, and named parameters in one flat vector. A program describes
// the computation once, for every device: a device turns it into something that runs
// (worker/device/device.h), and worker/model/plan.h derives backward from it. ProgramBuilder writes one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "worker/config/config.h"
#include "worker/core/vector_range.h"
#include "worker/data/dataset.h"

namespace dtrun::worker {

// Initial values, each from the parameter's own random stream.
struct UniformInit {
  float bound;  // U(-bound, bound)
};
struct NormalInit {
  float deviation;  // around 0
};
struct ConstantInit {
  float value;
};
using Init = std::variant<UniformInit, NormalInit, ConstantInit>;

struct Parameter {
  std::string name;                  // "conv1.weight"
  std::vector<std::int64_t> shape;   // as PyTorch stores it: conv [out, in, kh, kw], linear [out, in]
  std::size_t offset = 0, size = 0;  // in the flat vector, in floats
  Init init = ConstantInit{0};
  bool decays = false;   // AdamW's weight decay shrinks it: weights, but no biases and no norms
  bool running = false;  // no gradient makes it: a running statistic (Program::running)
};

// The operations. Shapes exclude the samples of a microbatch. Parameters are indices into
// Program::parameters.
struct Conv2d {
  int in_channels, out_channels, kernel;
  std::size_t weight;
  std::optional<std::size_t> bias;
  int stride = 1, padding = 0;  // padding: zeros on each side
};
struct Relu {};
struct Gelu {};  // the tanh approximation, as in GPT-2
struct MaxPool2d {
  int kernel, stride, padding = 0;
};                            // padding is never the largest; a remainder is dropped
struct GlobalAveragePool {};  // the mean of each channel
struct Flatten {};
struct Linear {
  int in_features, out_features;
  std::size_t weight;               // [out, in]
  std::optional<std::size_t> bias;  // [out]
  bool in_first = false;            // the weight is [in, out], as in GPT-2's files
};                                  // of each row
struct LayerNorm {
  int width;
  std::size_t weight, bias;
  float epsilon = 1e-5f;
};  // of each row
struct BatchNorm {
  int channels;
  std::size_t weight, bias, mean, variance;  // the latter two: running statistics, next to each other
  bool images;                               // BatchNorm2d's, not BatchNorm1d's
  double epsilon = 1e-5, momentum = 0.1;
};  // of each channel: in training over the microbatch, else by the running statistics
struct Embedding {
  int classes, width;
  std::size_t weight;  // [classes, width]
};                     // tokens -> rows
struct AddPositions {
  int positions, width;
  std::size_t weight;  // [positions, width]; row t of a sample gets its row t
};
struct Attention {
  int heads, width;
};  // rows [query | key | value] of 3 * width -> rows of width; causal, scaled by 1/sqrt(width / heads)
struct Dropout {
  float probability;
};  // in training: zero with this probability, else divided by 1 - probability; otherwise the identity
struct Add {};
struct LogSoftmaxNll {
  int classes;
};  // always last: log-softmax and the negative log-likelihood of each row
using Op = std::variant<Conv2d, Relu, Gelu, MaxPool2d, GlobalAveragePool, Flatten, Linear, LayerNorm,
                        BatchNorm, Embedding, AddPositions, Attention, Dropout, Add, LogSoftmaxNll>;

// Index of a value; 0 is the samples.
using Value = int;
inline constexpr Value kNoValue = -1;

// The shape of a value for one sample: one row, or one for each token.
struct ValueShape {
  int rows = 1;
  SampleShape row;
  std::size_t size() const { return rows * row.size(); }
  bool operator==(const ValueShape&) const = default;
};

struct Node {
  Op op;
  std::array<Value, 2> in{kNoValue, kNoValue};
  Value out = kNoValue;
  // Nodes of one segment, next to each other, may be computed a second time in backward instead of keeping
  // the values between them in memory. -1: the node is in no segment.
  int segment = -1;
};

struct Teacher;

struct Program {
  std::string model;         // its name in the config
  std::string input_values;  // Dataset::values() of its training data; for readers of the saved model
  std::string
      hub_config;      // config.json of the same model in Hugging Face's transformers; empty: there is none
  std::string layers;  // of a model of one's own: the config's list with all arguments, as JSON; else empty
  SampleSpec sample;
  float label_smoothing = 0;  // of the loss: this part of a target is spread over all classes evenly
  bool bf16 = false;          // matrix products round their factors to bf16; sums and all else are fp32
  // Linear layers and convolutions read their weights rounded to steps of these (worker/quantize/), also for
  // their inputs' gradients; none: as they are.
  std::optional<Quantization> quantize_aware;
  std::vector<ValueShape> values;
  std::vector<Node> nodes;            // in the order in which they run; each value is made by one of them
  std::vector<Parameter> parameters;  // in flat order
  std::size_t size = 0;               // floats in the flat vector
  // The first so many of them are running statistics, which belong to the state as parameters do. Where the
  // others have their gradient, a microbatch leaves the sums over its samples of the means of (x - c) and of
  // (x - c)^2 of each channel, with c the running mean: the tree adds them up as it does gradients.
  std::size_t running = 0;
  std::size_t trained() const { return size - running; }
  // Pieces of the flat gradient, in the order in which backward completes them: bucket 0 is the end of the
  // vector (the last layers). Fixed by the model, never by timing.
  std::vector<VectorRange> buckets;
  // The model whose outputs training teaches to this one, besides the samples' targets; null: none.
  std::shared_ptr<const Teacher> teacher;
};

// A model that a job reads and never changes: its parameters have no gradient, no optimizer and no exchange.
// Each worker has them.
struct Teacher {
  Program program;  // for the same samples, with as many classes
  std::vector<float> parameters;
  std::string path, sha256;  // of its model.safetensors
  // L = alpha temperature^2 KL(teacher || program) + (1 - alpha) cross-entropy, where both give the
  // softmax of their logits / temperature.
  float temperature = 1, alpha = 0;
};

// The program that `config` names, for such samples. Throws WorkerError with EX_CONFIG if the data does not
// fit the model.
Program make_program(const ModelConfig& config, const SampleSpec& sample);
// As a job trains it: its loss, and the type that its matmuls round to. `input_values`: Dataset::values().
Program make_program(const JobConfig& config, const SampleSpec& sample, std::string input_values = {});

// Why the data cannot train the program's batch norms; "" if it can: some microbatch of an epoch of so many
// samples would have one value a channel, which has no variance.
std::string too_few_values(const Program& program, const TrainConfig& train, std::int64_t samples);

// Parameters that the node reads and whose gradients it makes, in flat order; none or up to two.
std::vector<std::size_t> parameters_of(const Op& op);

// Initial values, from RandomStream(seed, kInit, parameter index). flat: [program.size]. The same bits on
// every machine.
void initialize_parameters(const Program& program, std::uint64_t seed, std::span<float> flat);

// The metadata of a saved model (docs/model.md): "format", "model", "input_shape", "input_values"; for a
// chain its "layers", PyTorch's modules of the same names with their first arguments; of a model of one's own
// its "modules", the config's list with all arguments; for a model that transformers has, its "config".
std::map<std::string, std::string> description(const Program& program);

// One name for nodes that do the same work: "Linear 256 -> 768".
std::string describe(const Program& program, int node);

// The operation as a module of torch.nn with one input, "fc1=Linear(320, 50)"; empty: there is none.
std::string torch_module(const Program& program, const Op& op);

// sha256 (hex) over all parameters as little-endian fp32, in name order.
std::string parameters_sha256(const Program& program, std::span<const float> flat);

}  // namespace dtrun::worker
