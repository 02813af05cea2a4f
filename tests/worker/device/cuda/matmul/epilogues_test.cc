// DTRUN_CUDA_EPILOGUES: the epilogues that matmuls may have, and the same results without them.
#include "worker/device/cuda/matmul/epilogues.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/core/exit_codes.h"
#include "tests/cuda_on_cpu/counters.h"
#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/base/error.h"
#include "worker/device/cuda/steps.h"

namespace dtrun::worker::cuda {
namespace {

// Sets the variable while it lives.
class Variable {
 public:
  explicit Variable(const std::string& value) { setenv("DTRUN_CUDA_EPILOGUES", value.c_str(), 1); }
  ~Variable() { unsetenv("DTRUN_CUDA_EPILOGUES"); }
  Variable(const Variable&) = delete;
};

using Found = std::set<Epilogue>;

Found epilogues_in(const Program& program, const char* words) {
  const Epilogues epilogues(words);
  const Schedule schedule = make_schedule(program, make_plan(program, 3, plan_for_gpu(program.bf16)), 3,
                                          {.bf16 = program.bf16, .multiplies = [&](const MatmulShape& shape) {
                                             return epilogues.may(shape.epilogue);
                                           }});
  Found found;
  for (const auto& [shape, times] : products_of(schedule)) found.insert(shape.epilogue);
  return found;
}

TEST_CASE("a schedule has the epilogues that are named") {
  using enum Epilogue;
  const Program gpt2 = gpt2_program(tiny_gpt2(), 7, 13);
  const Program mlp =
      make_program({.type = ModelType::kMlp, .hidden_sizes = {19}}, {.shape = {2, 3, 5}, .classes = 7});
  CHECK(epilogues_in(gpt2, "1") == Found{kNone, kBias, kBiasGelu, kGeluGradient, kColumnSums});
  CHECK(epilogues_in(gpt2, "0") == Found{kNone});
  CHECK(epilogues_in(gpt2, "bias") == Found{kNone, kBias});
  CHECK(epilogues_in(gpt2, "gelu") == Found{kNone, kBiasGelu});
  CHECK(epilogues_in(gpt2, "gelu_gradient") == Found{kNone, kGeluGradient});
  CHECK(epilogues_in(gpt2, "sums,bias") == Found{kNone, kBias, kColumnSums});
  CHECK(epilogues_in(mlp, "1") == Found{kNone, kBias, kBiasRelu, kRowSums});
  CHECK(epilogues_in(mlp, "sums") == Found{kNone, kRowSums});
}

TEST_CASE("words that name none are refused") {
  for (const char* const words : {"", "2", "01", "bias,", ",bias", "bias gelu", "0,bias", "1,sums", "relu"}) {
    CAPTURE(words);
    const Variable variable(words);
    try {
      make_cuda_device(0);
      FAIL("it is not refused");
    } catch (const WorkerError& error) {
      CHECK(error.exit_code() == kExitConfig);
      CHECK(std::string(error.what()).find("DTRUN_CUDA_EPILOGUES=" + std::string(words) + " ") !=
            std::string::npos);
    }
  }
}

TEST_CASE("a device says which it may use, if not all") {
  const std::string usual = make_cuda_device(0)->fingerprint();
  for (const auto& [words, said] : {std::pair{"1", ""},
                                    {"bias,gelu,sums,gelu_gradient", ""},
                                    {"0", ", epilogues none"},
                                    {"gelu,bias", ", epilogues bias,gelu"}}) {
    const Variable variable(words);
    CHECK(make_cuda_device(0)->fingerprint() == usual + said);
  }
}

// Length of the difference to the reference's gradient, in lengths of that, where some are allowed.
double distance(const Program& program, const char* words) {
  const Variable variable(words);
  OnGpu gpu(program, 3);
  const Problem problem(program, 3);
  gpu.load(problem.parameters);
  const std::vector<float> gradient = gpu.train(problem.microbatch(3)).gradient;
  const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
  const std::vector<double> right = reference::run(program, parameters, problem.microbatch(3), true).gradient;
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    difference += std::pow(gradient[i] - right[i], 2);
    length += std::pow(right[i], 2);
  }
  return std::sqrt(difference / length);
}

TEST_CASE("without them the same is computed, by kernels") {
  for (NamedProgram& named : planned_programs())
    for (const char* const words : {"0", "bias,gelu", "sums"}) {
      CAPTURE(named.name);
      CAPTURE(words);
      named.program.bf16 = false;
      CHECK(distance(named.program, words) < 1e-5);
      named.program.bf16 = true;
      CHECK(distance(named.program, words) < 4e-2);
    }
}

TEST_CASE("what a lane launches follows") {
  // Kernels of a microbatch by the beginnings of their names.
  const auto launched = [](const char* words) {
    const Variable variable(words);
    const Program program = gpt2_program(tiny_gpt2(), 7, 13);
    const Problem problem(program, 3);
    OnGpu gpu(program, 3);
    gpu.load(problem.parameters);
    cuda_on_cpu::reset_counters();
    gpu.train(problem.microbatch(3));
    std::map<std::string, std::uint64_t> kernels;
    for (const auto& [name, times] : cuda_on_cpu::counters().kernels_by_name)
      kernels[name.substr(0, name.find('<'))] += times;
    return kernels;
  };
  auto all = launched("1"), none = launched("0"), sums = launched("sums");
  const int layers = tiny_gpt2().n_layer;
  CHECK(all["add_row_kernel"] == 0);
  CHECK(none["add_row_kernel"] == 4 * layers);
  CHECK(sums["add_row_kernel"] == 4 * layers);
  CHECK(none["sum_rows_kernel"] == all["sum_rows_kernel"] + 4 * layers);
  CHECK(sums["sum_rows_kernel"] == all["sum_rows_kernel"]);
  CHECK(none["map_kernel"] == all["map_kernel"] + 2 * layers);
}

}  // namespace
}  // namespace dtrun::worker::cuda
