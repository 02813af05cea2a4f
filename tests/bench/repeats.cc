#include "tests/bench/repeats.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "proto/core/exit_codes.h"
#include "tests/bench/bit_hash.h"
#include "tests/bench/multiplication.h"
#include "worker/base/error.h"
#include "worker/device/cuda/kernels/vector.h"
#include "worker/device/cuda/lane/attention.h"
#include "worker/device/cuda/lane/convolution.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda/trial.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::cuda {
namespace {

constexpr const char* kNoRoom = "there is no room for it";

// `once` enqueues, and adds its results to the hash.
void repeat(Repeated& result, BitHash& hash, int times, const std::function<void()>& once) {
  for (result.times = 0; result.times < times; ++result.times) {
    once();
    const std::uint64_t now = hash.take();
    if (result.times == 0) result.hash = now;
    result.others += static_cast<int>(now != result.hash);
  }
}

// `found` gets the result, also where there was no room.
void tell(Repeated result, const std::function<void(Repeated&)>& trial,
          const std::function<void(const Repeated&)>& found) {
  try {
    trial(result);
  } catch (const WorkerError& error) {
    if (error.exit_code() != kExitConfig) throw;
    result.skipped = kNoRoom;
  }
  found(result);
}

void repeat_product(TrialGpu& gpu, BitHash& hash, int times, const MatmulShape& shape, Repeated& result) {
  Multiplication product(shape, gpu.arithmetic, gpu.stream, 0);
  if (!product.made()) {
    result.skipped = kNoRoom;
    return;
  }
  product.fill();
  repeat(result, hash, times, [&] {
    product.fill_results();
    product.enqueue(gpu.matmuls, gpu.workspace.data());
    product.add_to(hash);
  });
}

// The same algorithm with and without the addition, or its split would change bits.
void compare_addition(TrialGpu& gpu, BitHash& hash, MatmulShape shape, Repeated& result) {
  shape.epilogue = Epilogue::kNone;
  MatmulShape adding = shape;
  adding.add = true;
  const std::vector<AlgorithmWords> proposed = gpu.matmuls.proposals(shape, 1);
  if (proposed.empty()) {
    result.skipped = "the library has no algorithm for it";
    return;
  }
  Matmuls matmuls;
  for (const MatmulShape& each : {shape, adding})
    if (const std::string refused = matmuls.use(each, proposed.front()); !refused.empty()) {
      result.skipped = "refused: " + refused;
      return;
    }
  const OperandBytes bytes = bytes_of(shape);
  const std::size_t floats = bytes.c / sizeof(float);
  const OnGpuVector<float> a(gpu, bytes.a / sizeof(float) + 1, 1), b(gpu, bytes.b / sizeof(float) + 1, 2);
  if (shape.bf16) {
    scatter(gpu.stream.handle(), bytes.a / 2, 1, 1, reinterpret_cast<__nv_bfloat16*>(a.data()));
    scatter(gpu.stream.handle(), bytes.b / 2, 2, 1, reinterpret_cast<__nv_bfloat16*>(b.data()));
  }
  const OnGpuVector<float> sum(gpu, floats, 3), left(gpu, floats, 3), right(gpu, floats, 4);
  matmuls.multiply(adding, {.a = a.data(), .b = b.data(), .c = sum.data(), .bias = nullptr, .aux = nullptr},
                   gpu.workspace.data(), gpu.stream.handle());
  hash.add(sum.data(), sum.bytes());
  result.hash = hash.take();
  matmuls.multiply(shape, {.a = a.data(), .b = b.data(), .c = right.data(), .bias = nullptr, .aux = nullptr},
                   gpu.workspace.data(), gpu.stream.handle());
  accumulate(gpu.stream.handle(), left.data(), right.data(), floats);
  check_launch("accumulate");
  hash.add(left.data(), left.bytes());
  result.times = 1;
  result.others = static_cast<int>(hash.take() != result.hash);
}

// A gradient of parameters: where leaves meet, it is added to the old value.
bool may_add(const MatmulShape& shape) {
  const bool sums = shape.epilogue == Epilogue::kColumnSums || shape.epilogue == Epilogue::kRowSums;
  return (shape.wide || !shape.bf16) && shape.a_transposed && !shape.b_transposed && !shape.add &&
         (sums || shape.epilogue == Epilogue::kNone) && shape.c_stride == shape.n;
}

std::string title_of(const AttentionShape& s) {
  return "B=" + std::to_string(s.samples) + " H=" + std::to_string(s.heads) +
         " T=" + std::to_string(s.tokens) + " d=" + std::to_string(s.head_size);
}

template <typename T>
void repeat_attention(TrialGpu& gpu, BitHash& hash, int times, const AttentionForward& forward,
                      const AttentionBackward& backward, Repeated& result) {
  const AttentionShape shape = shape_of(forward);
  AttentionOps<T> ops;
  Trial trial(gpu.arithmetic, gpu.stream, nullptr, 0);
  result.by = gpu.cudnn && ops.use(*gpu.cudnn, shape, trial).empty() ? "cuDNN" : "own kernels";
  const AttentionMemory<T> memory(gpu, shape);
  const Buffer workspace = gpu.arithmetic.allocate_bytes(
      std::max(ops.workspace(forward), ops.workspace(backward)), "the work of attention");
  auto* const on = gpu.stream.handle();
  repeat(result, hash, times, [&] {
    ops.forward(on, shape, memory.qkv.data(), memory.out.data(), memory.statistics.data(), workspace.data());
    ops.backward(on, shape, memory.qkv.data(), memory.out.data(), memory.out_gradient.data(),
                 memory.statistics.data(), memory.qkv_gradient.data(), workspace.data());
    hash.add(memory.out.data(), memory.out.bytes());
    hash.add(memory.statistics.data(), memory.statistics.bytes());
    hash.add(memory.qkv_gradient.data(), memory.qkv_gradient.bytes());
  });
}

// The steps of one convolution; a first layer has no gradient of its input.
struct ConvolutionSteps {
  Convolve forward;
  std::optional<ConvolveInGradient> input;
  std::optional<ConvolveWeightGradient> parameters;
};

std::string title_of(const ConvShape& s) {
  const auto text = [](int number) { return std::to_string(number); };
  return "N=" + text(s.samples) + " " + text(s.in_channels) + "x" + text(s.height) + "x" + text(s.width) +
         " to " + text(s.out_channels) + ", kernel " + text(s.kernel);
}

template <typename T>
void repeat_convolution(TrialGpu& gpu, BitHash& hash, int times, const ConvolutionSteps& steps,
                        Repeated& result) {
  const ConvShape shape = convolution_of(steps.forward.shape);
  const auto count = [](auto... factors) {
    return (std::size_t{1} * ... * static_cast<std::size_t>(factors));
  };
  const std::size_t ins = count(shape.samples, shape.in_channels, shape.height, shape.width),
                    outs = count(shape.samples, shape.out_channels, shape.out_height(), shape.out_width()),
                    weights = count(shape.out_channels, shape.in_channels, shape.kernel, shape.kernel);
  ConvolutionOps<T> ops;
  Trial trial(gpu.arithmetic, gpu.stream, nullptr, 0);
  const bool cudnns = gpu.cudnn && ops.use(*gpu.cudnn, shape, steps.input.has_value(), trial).empty();
  result.by = cudnns ? "cuDNN" : "own kernels";
  const OnGpuVector<T> in(gpu, ins, 1), weight(gpu, weights, 2), out(gpu, outs, 3),
      out_gradient(gpu, outs, 4), in_gradient(gpu, ins, 5);
  const OnGpuVector<float> bias(gpu, count(shape.out_channels), 6), weight_gradient(gpu, weights, 7),
      bias_gradient(gpu, count(shape.out_channels), 8);
  std::size_t most = ops.workspace(steps.forward);
  if (steps.input) most = std::max(most, ops.workspace(*steps.input));
  if (steps.parameters) most = std::max(most, ops.workspace(*steps.parameters));
  const Buffer workspace = gpu.arithmetic.allocate_bytes(most, "the work of a convolution");
  auto* const on = gpu.stream.handle();
  repeat(result, hash, times, [&] {
    // The values that a step adds to.
    scatter(on, ins, 5, 1, in_gradient.data());
    scatter(on, weights, 7, 1, weight_gradient.data());
    scatter(on, bias_gradient.count(), 8, 1, bias_gradient.data());
    ops.forward(on, steps.forward, in.data(), weight.data(), bias.data(), out.data(), workspace.data());
    hash.add(out.data(), out.bytes());
    if (steps.input) {
      ops.backward_input(on, *steps.input, weight.data(), out_gradient.data(), in_gradient.data(),
                         workspace.data());
      hash.add(in_gradient.data(), in_gradient.bytes());
    }
    if (steps.parameters) {
      ops.backward_parameters(on, *steps.parameters, in.data(), out_gradient.data(), weight_gradient.data(),
                              bias_gradient.data(), workspace.data());
      hash.add(weight_gradient.data(), weight_gradient.bytes());
      hash.add(bias_gradient.data(), bias_gradient.bytes());
    }
  });
}

// Attentions and convolutions, each shape once.
struct Parts {
  std::map<AttentionShape, std::pair<AttentionForward, AttentionBackward>> attentions;
  std::map<ConvShape, ConvolutionSteps> convolutions;
};

Parts parts_of(const Schedule& schedule) {
  Parts parts;
  for (const Step& step : schedule.forward) {
    if (const auto* const attend = std::get_if<AttentionForward>(&step.work))
      parts.attentions.try_emplace(shape_of(*attend), *attend, AttentionBackward{});
    if (const auto* const convolve = std::get_if<Convolve>(&step.work))
      parts.convolutions.try_emplace(convolution_of(convolve->shape),
                                     ConvolutionSteps{.forward = *convolve, .input = {}, .parameters = {}});
  }
  for (const Step& step : schedule.backward) {
    if (const auto* const attend = std::get_if<AttentionBackward>(&step.work))
      parts.attentions.at(shape_of(*attend)).second = *attend;
    if (const auto* const convolve = std::get_if<ConvolveInGradient>(&step.work))
      parts.convolutions.at(convolution_of(convolve->shape)).input = *convolve;
    if (const auto* const convolve = std::get_if<ConvolveWeightGradient>(&step.work))
      parts.convolutions.at(convolution_of(convolve->shape)).parameters = *convolve;
  }
  return parts;
}

// Keeps a GPU busy with work of its own, as long as it lives.
class Busy {
 public:
  Busy(CudaArithmetic& arithmetic, std::size_t bytes)
      : floats_(bytes / sizeof(float)), memory_(arithmetic.allocate_bytes(bytes, "what runs beside")) {
    if (floats_ > 0) thread_ = std::thread([this] { run(); });
  }
  ~Busy() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Busy(const Busy&) = delete;

 private:
  static constexpr int kAhead = 8;  // launches

  void run() {
    try {
      CudaStream stream(0);
      for (unsigned seed = 0; !ends_; stream.wait())
        for (int i = 0; i < kAhead; ++i) scatter(stream.handle(), floats_, ++seed, 1, memory_.data());
    } catch (const WorkerError&) {
      // The GPU failed: the others say so.
    }
  }

  const std::size_t floats_;
  const Buffer memory_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

// Samples that are always the same.
struct Samples {
  Samples(const Program& program, int samples)
      : values(static_cast<std::size_t>(samples) * program.sample.shape.size()),
        tokens(values.size()),
        targets(static_cast<std::size_t>(samples) * program.sample.targets) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15u;
      values[i] = static_cast<float>(mixed >> 40) * 0x1p-24f;
      tokens[i] = static_cast<std::int32_t>((mixed >> 33) % static_cast<unsigned>(program.sample.classes));
    }
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = static_cast<std::int32_t>((i * 7 + 3) % static_cast<unsigned>(program.sample.classes));
  }
  std::vector<float> values;
  std::vector<std::int32_t> tokens, targets;
};

}  // namespace

void repeat_parts(TrialGpu& gpu, const Job& job, const RepeatOptions& options,
                  const std::function<void(const Repeated&)>& found) {
  BitHash hash(gpu.arithmetic, gpu.stream);
  const Schedule schedule =
      schedule_of(job, [&](const MatmulShape& shape) { return gpu.matmuls.can(shape); });
  const Parts parts = parts_of(schedule);
  for (const auto& each : parts.attentions) {
    if (!options.goes_on()) return;
    const auto& [forward, backward] = each.second;
    const auto repeat_it = job.program.bf16 ? repeat_attention<__nv_bfloat16> : repeat_attention<float>;
    tell(
        {.kind = "attention", .what = title_of(each.first)},
        [&, &forward = forward, &backward = backward](Repeated& result) {
          repeat_it(gpu, hash, options.times, forward, backward, result);
        },
        found);
  }
  for (const auto& each : parts.convolutions) {
    if (!options.goes_on()) return;
    const auto repeat_it = job.program.bf16 ? repeat_convolution<__nv_bfloat16> : repeat_convolution<float>;
    tell(
        {.kind = "convolution", .what = title_of(each.first)},
        [&](Repeated& result) { repeat_it(gpu, hash, options.times, each.second, result); }, found);
  }
  for (const auto& each : products_of(schedule)) {
    if (!options.goes_on()) return;
    const MatmulShape& shape = each.first;
    tell(
        {.kind = "matmul", .what = title_of(shape)},
        [&](Repeated& result) { repeat_product(gpu, hash, options.times, shape, result); }, found);
    if (may_add(shape))
      tell(
          {.kind = "addition", .what = title_of(shape)},
          [&](Repeated& result) { compare_addition(gpu, hash, shape, result); }, found);
  }
}

Repeated repeat_microbatch(const Job& job, const RepeatOptions& options) {
  Repeated result{.kind = "microbatch", .what = "its gradient"};
  try {
    const std::unique_ptr<Device> device = make_cuda_device(0);
    CudaArithmetic own(0);
    const std::unique_ptr<Lane> lane = device->make_lane(job.program, job.samples);
    const Samples samples(job.program, job.samples);
    std::vector<float> initial(job.program.size);
    initialize_parameters(job.program, 1, initial);
    const Buffer parameters = device->arithmetic().allocate(Where::kDevice, job.program.size);
    const Buffer out = device->arithmetic().allocate(Where::kDevice, kStatisticsFloats + job.program.size);
    device->arithmetic().copy(lane->stream(), parameters.data(), initial.data(), initial.size());
    lane->stream().wait();
    lane->parameters_changed(parameters.data());
    const Microbatch microbatch{.samples = job.samples,
                                .values = samples.values.data(),
                                .tokens = samples.tokens.data(),
                                .targets = samples.targets.data(),
                                .key = {.seed = 3, .number = 8}};
    BitHash hash(own, dynamic_cast<CudaStream&>(lane->stream()));
    const Busy busy(own, options.busy_bytes);
    repeat(result, hash, options.times, [&] {
      lane->train(microbatch, out.data(), [](int) {});
      hash.add(out.data(), (kStatisticsFloats + job.program.size) * sizeof(float));
    });
  } catch (const WorkerError& error) {
    if (error.exit_code() != kExitConfig) throw;
    result.skipped = error.what();
  }
  return result;
}

}  // namespace dtrun::worker::cuda
