// The algorithm that computes a matmul: the library's first choice that is right.
#include "worker/device/cuda/matmul/matmuls.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "proto/base/log.h"
#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/worker/device/cuda/matmul/products_on_cpu.h"
#include "tests/worker/device/cuda/on_gpu.h"
#include "tests/worker/model/programs.h"
#include "tests/worker/model/reference.h"
#include "worker/base/error.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::cuda::matmuls_test {
namespace {

using Counted = ProductsByAlgorithm;

MatmulShape shape_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k = k, .a_stride = k, .b_stride = n, .c_stride = n};
}

// c of operands that are always the same.
class Multiplied {
 public:
  std::vector<float> operator()(Matmuls& matmuls, const MatmulShape& shape) {
    const Buffer a = filled(shape.m * shape.k), b = filled(shape.k * shape.n);
    std::vector<float> result(static_cast<std::size_t>(shape.m * shape.n));
    const Buffer c = arithmetic_.allocate(Where::kDevice, result.size());
    const Buffer workspace = arithmetic_.allocate_bytes(matmuls.workspace(shape) + 256, "matmuls");
    cuda_on_cpu::reset_counters();
    matmuls.multiply(shape, {.a = a.data(), .b = b.data(), .c = c.data(), .bias = nullptr, .aux = nullptr},
                     workspace.data(), stream_.handle());
    arithmetic_.copy(stream_, result.data(), c.data(), result.size());
    stream_.wait();
    return result;
  }

 private:
  Buffer filled(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    Buffer buffer = arithmetic_.allocate(Where::kDevice, values.size());
    arithmetic_.copy(stream_, buffer.data(), values.data(), values.size());
    stream_.wait();
    return buffer;
  }

  CudaArithmetic arithmetic_{0};
  CudaStream stream_{0};
};

// Lines of the log while it exists.
class Log {
 public:
  Log() {
    set_log_reader([this](const std::string& line) { lines_.push_back(line); });
  }
  ~Log() {
    set_log_reader([](const std::string&) {});
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

TEST_CASE("a shape is computed by the library's first choice until the next proposals are asked for") {
  Multiplied multiplied;
  Matmuls matmuls;
  const MatmulShape shape = shape_of(24, 20, 400);
  const std::vector<float> first = multiplied(matmuls, shape);
  CHECK(cuda_on_cpu::counters().products_by_algorithm == Counted{{"tile 20, split 4", 1}});
  for (int i = 0; i < 3; ++i) CHECK(matmuls.try_next(shape));
  const std::vector<float> other = multiplied(matmuls, shape);
  CHECK(cuda_on_cpu::counters().products_by_algorithm == Counted{{"tile 15, split 2", 1}});
  CHECK(other != first);
  CHECK(matmuls.try_next(shape));
  CHECK(!matmuls.try_next(shape));
  CHECK(!matmuls.can(shape));
}

TEST_CASE("a device's fingerprint names the GPU and the library that multiplies") {
  CHECK(make_cuda_device(0)->fingerprint() == kPlatformOnCpu);
}

// The stand-in is as it was at the end.
struct SettingsRestored {
  const cuda_on_cpu::Settings before = cuda_on_cpu::settings;
  ~SettingsRestored() { cuda_on_cpu::settings = before; }
};

constexpr const char* kLosesTerms = "tile 11, split 1";

bool told_of_wrong_products(const Log& log) {
  return std::ranges::any_of(log.lines(), [](const std::string& line) {
    return line.find(" is wrong: of ones, ") != std::string::npos && line.ends_with("; another one is used");
  });
}

TEST_CASE(
    "where the library's first choice is wrong or of no use, the next one that is right computes a shape") {
  for (const bool bf16 : {false, true}) {
    Program program = gpt2_program(tiny_gpt2(), 7, 13);
    program.bf16 = bf16;
    const Counted usual = products_of_a_step(program, 2);
    for (const bool wrong : {true, false}) {
      const SettingsRestored settings;
      cuda_on_cpu::settings.faulty_first = wrong;
      cuda_on_cpu::settings.unsupported_first = !wrong;
      const Log log;
      const Counted counted = products_of_a_step(program, 2);
      CHECK(!counted.contains(kLosesTerms));
      CHECK((counted == usual) == wrong);
      CHECK(told_of_wrong_products(log) == wrong);
    }
  }
}

TEST_CASE(
    "a step of a model whose matmuls are wrong with one epilogue does that apart; a plain one ends the "
    "job") {
  const auto count = [](const Counted& counted) {
    int matmuls = 0;
    for (const auto& [name, times] : counted) matmuls += times;
    return matmuls;
  };
  for (const bool bf16 : {false, true})
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADA}) {
      CAPTURE(bf16);
      CAPTURE(static_cast<int>(epilogue));
      ModelConfig wide = tiny_gpt2();  // the stand-in loses 8 terms
      wide.n_embd = 16;
      Program program = gpt2_program(wide, 7, 13);
      program.bf16 = bf16;
      const SettingsRestored settings;
      const int usual = count(products_of_a_step(program, 2));
      cuda_on_cpu::settings.faulty_epilogue = epilogue;
      const Log log;
      CHECK(count(products_of_a_step(program, 2)) == usual);
      // A matmul without an algorithm is none that a step could have.
      CHECK(std::ranges::any_of(log.lines(), [](const std::string& line) {
        return line.ends_with("; and so are all that it proposes");
      }));
    }
  const SettingsRestored settings;
  cuda_on_cpu::settings.faulty_epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  CHECK_THROWS_WITH_AS(products_of_a_step(gpt2_program(tiny_gpt2(), 7, 13), 2),
                       doctest::Contains("matrices are multiplied wrong"), WorkerError);
}

TEST_CASE("where the library has no epilogues the same is computed, by kernels") {
  const SettingsRestored settings;
  cuda_on_cpu::settings.epilogues = false;
  for (NamedProgram& named : planned_programs()) {
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      Program& program = named.program;
      program.bf16 = bf16;
      OnGpu gpu(program, 3);
      CHECK(gpu.use().parts.at("fused_epilogues").starts_with("0 of "));
      const Problem problem(program, 3);
      gpu.load(problem.parameters);
      const std::vector<float> gradient = gpu.train(problem.microbatch(3)).gradient;
      const std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
      const std::vector<double> right =
          reference::run(program, parameters, problem.microbatch(3), true).gradient;
      // Length of the difference to the reference's gradient, in lengths of that.
      double difference = 0, length = 0;
      for (std::size_t i = 0; i < right.size(); ++i) {
        difference += std::pow(gradient[i] - right[i], 2);
        length += std::pow(right[i], 2);
      }
      CHECK(std::sqrt(difference / length) < (bf16 ? 4e-2 : 1e-5));
    }
  }
}

TEST_CASE("who says so is only told of what is wrong") {
  const SettingsRestored settings;
  const Program program = gpt2_program(tiny_gpt2(), 7, 13);
  cuda_on_cpu::settings.faulty_first = true;
  setenv("DTRUN_CUDA_MATMUL_CHECK", "0", 1);
  const Log log;
  CHECK(products_of_a_step(program, 2).contains(kLosesTerms));
  unsetenv("DTRUN_CUDA_MATMUL_CHECK");
  CHECK(std::ranges::any_of(log.lines(), [](const std::string& line) {
    return line.ends_with("; it is used all the same (DTRUN_CUDA_MATMUL_CHECK=0)");
  }));
}

}  // namespace
}  // namespace dtrun::worker::cuda::matmuls_test
