#include "tests/bench/attention_ways.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/core/exit_codes.h"
#include "tests/bench/bit_hash.h"
#include "worker/base/error.h"
#include "worker/device/cuda/lane/attention.h"
#include "worker/device/cuda/trial.h"

namespace dtrun::worker::cuda {
namespace {

using Memory = AttentionMemory<__nv_bfloat16>;

AttentionWay own_way(const AttentionShape& shape) {
  return {.name = "own kernels",
          .workspace = attention_statistics(shape) * sizeof(float),
          .forward =
              [shape](cudaStream_t on, const Memory& memory, void*) {
                attention(on, shape, memory.qkv.data(), memory.out.data(), memory.statistics.data());
                check_launch("attention");
              },
          .backward =
              [shape](cudaStream_t on, const Memory& memory, void* work) {
                attention_backward(on, shape, memory.qkv.data(), memory.out.data(),
                                   memory.out_gradient.data(), memory.statistics.data(),
                                   memory.qkv_gradient.data(), static_cast<float*>(work));
                check_launch("attention_backward");
              }};
}

// Another result of the same operands.
struct Reference {
  Reference(TrialGpu& gpu, const Memory& memory)
      : out(gpu, memory.rows, 1), qkv_gradient(gpu, 3 * memory.rows, 2), apart(gpu, 2, 3) {}
  void keep(TrialGpu& gpu, const Memory& memory) const {
    const auto copy = [&](const auto& to, const auto& from) {
      check(cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyDeviceToDevice,
                            gpu.stream.handle()),
            "copying");
    };
    copy(out, memory.out);
    copy(qkv_gradient, memory.qkv_gradient);
  }
  // cuDNN rounds probabilities and their gradients to bf16, the own kernels do not.
  std::string difference(TrialGpu& gpu, const Memory& memory) const {
    constexpr float kTolerance = 1.0f / 32;
    const Trial trial(gpu.arithmetic, gpu.stream, nullptr, 0);
    const std::string of_out =
        trial.difference("output", memory.rows, out.data(), memory.out.data(), kTolerance, apart.data());
    return !of_out.empty() ? of_out
                           : trial.difference("gradient", 3 * memory.rows, qkv_gradient.data(),
                                              memory.qkv_gradient.data(), kTolerance, apart.data());
  }
  OnGpuVector<__nv_bfloat16> out, qkv_gradient;
  OnGpuVector<float> apart;
};

// Whether it gives the same bits each time, and the reference's numbers; of the first way they become it.
void try_out(TrialGpu& gpu, const AttentionWay& way, const Memory& memory, void* work, int times,
             const Reference& reference, bool is_reference, MeasuredAttention& result) {
  BitHash hash(gpu.arithmetic, gpu.stream);
  std::uint64_t first = 0;
  for (result.times = 0; result.times < times; ++result.times) {
    way.forward(gpu.stream.handle(), memory, work);
    way.backward(gpu.stream.handle(), memory, work);
    hash.add(memory.out.data(), memory.out.bytes());
    hash.add(memory.qkv_gradient.data(), memory.qkv_gradient.bytes());
    const std::uint64_t now = hash.take();
    if (result.times == 0) first = now;
    result.others += static_cast<int>(now != first);
  }
  if (is_reference) return reference.keep(gpu, memory);
  const std::string difference = reference.difference(gpu, memory);
  if (!difference.empty()) result.fault = "not the own kernels' results: " + difference;
}

std::vector<MeasuredAttention> measure(TrialGpu& gpu, const AttentionShape& shape, int times,
                                       std::vector<AttentionWay> others) {
  std::vector<AttentionWay> ways{own_way(shape)};
  for (AttentionWay& way : others) ways.push_back(std::move(way));
  std::size_t most = 0;
  for (const AttentionWay& way : ways) most = std::max(most, way.workspace);
  const Memory memory(gpu, shape);
  const Reference reference(gpu, memory);
  const Buffer work = gpu.arithmetic.allocate_bytes(most, "the work of attention");
  auto* const on = gpu.stream.handle();

  std::vector<MeasuredAttention> measured;
  std::vector<std::size_t> timed;  // those of them whose steps are timed
  std::vector<Way> steps;          // for each of these forward, then backward
  for (const AttentionWay& way : ways) {
    const bool is_reference = measured.empty();
    MeasuredAttention& result =
        measured.emplace_back(MeasuredAttention{.shape = shape, .name = way.name, .why_not = way.why_not});
    if (!way.why_not.empty()) continue;
    // Forward has two matmuls of positions x positions x head_size, backward five; causal attention halves
    // them.
    const double half_product =
        1.0 * shape.samples * shape.heads * shape.tokens * shape.tokens * shape.head_size;
    result.forward_flops = 2 * half_product;
    result.backward_flops = 5 * half_product;
    result.workspace = way.workspace;
    try {
      try_out(gpu, way, memory, work.data(), times, reference, is_reference, result);
    } catch (const WorkerError& error) {
      if (is_reference) throw;
      result.fault = std::string("it fails: ") + error.what();
      continue;
    }
    timed.push_back(measured.size() - 1);
    steps.push_back({.enqueue = [&] { way.forward(on, memory, work.data()); }});
    // Each backward gets statistics of its own forward.
    steps.push_back({.enqueue = [&] { way.backward(on, memory, work.data()); },
                     .prepare = [&] { way.forward(on, memory, work.data()); }});
  }
  const std::vector<double> medians = medians_by_turns(gpu.stream, gpu.timer, steps);
  for (std::size_t i = 0; i < timed.size(); ++i) {
    measured[timed[i]].forward = medians[2 * i];
    measured[timed[i]].backward = medians[2 * i + 1];
  }
  return measured;
}

double copied_bytes_per_second(TrialGpu& gpu, const AttentionShape& shape) {
  const Memory memory(gpu, shape);
  const double microseconds =
      medians_by_turns(
          gpu.stream, gpu.timer,
          {{.enqueue =
                [&] {
                  check(cudaMemcpyAsync(memory.qkv_gradient.data(), memory.qkv.data(), memory.qkv.bytes(),
                                        cudaMemcpyDeviceToDevice, gpu.stream.handle()),
                        "copying");
                }}})
          .front();
  return 2 * static_cast<double>(memory.qkv.bytes()) / std::max(microseconds, 1e-3) * 1e6;
}

}  // namespace

AttentionResults measure_attention(
    TrialGpu& gpu, const std::vector<Job>& jobs, int times,
    const std::function<std::vector<AttentionWay>(const AttentionShape& shape)>& others) {
  std::set<AttentionShape> shapes;
  for (const Job& job : jobs) {
    if (!job.program.bf16) continue;
    const Schedule schedule =
        schedule_of(job, [&](const MatmulShape& shape) { return gpu.matmuls.can(shape); });
    for (const Step& step : schedule.forward)
      if (const auto* const attend = std::get_if<AttentionForward>(&step.work))
        shapes.insert(shape_of(*attend));
  }
  AttentionResults results;
  for (const AttentionShape& shape : shapes) {
    try {
      for (MeasuredAttention& measured : measure(gpu, shape, times, others(shape)))
        results.ways.push_back(std::move(measured));
    } catch (const WorkerError& error) {
      if (error.exit_code() != kExitConfig) throw;
      results.ways.push_back({.shape = shape, .name = "all", .why_not = error.what()});
    }
  }
  if (!shapes.empty()) results.copied_bytes_per_second = copied_bytes_per_second(gpu, *shapes.rbegin());
  return results;
}

}  // namespace dtrun::worker::cuda
