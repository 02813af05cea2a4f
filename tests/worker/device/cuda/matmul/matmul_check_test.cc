// A library that multiplies wrong is found before it trains anything.
#include "worker/device/cuda/matmul/matmul_check.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/worker/model/programs.h"
#include "worker/base/error.h"
#include "worker/device/cuda/arithmetic.h"
#include "worker/device/cuda/steps.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::matmul_check_test {
namespace {

// The error of making a lane if matmuls lose so many of their last terms.
std::string refusal(const Program& program, unsigned lost_terms, int capacity = 3) {
  const auto device = make_cuda_device(0);
  cuda_on_cpu::settings.lost_terms = lost_terms;
  std::string words;
  try {
    device->make_lane(program, capacity);
  } catch (const WorkerError& error) {
    words = error.what();
    CHECK(error.exit_code() == kExitConfig);
  }
  cuda_on_cpu::settings.lost_terms = 0;
  return words;
}

TEST_CASE("sums that lose their last terms are found, in every type and with every epilogue") {
  for (const NamedProgram& named : planned_programs())
    for (const bool bf16 : {false, true}) {
      CAPTURE(named.name);
      CAPTURE(bf16);
      Program program = named.program;
      program.bf16 = bf16;
      CHECK(refusal(program, 0).empty());
      const std::string words = refusal(program, 1);
      CHECK(words.find("cuBLASLt 13.1.0") != std::string::npos);
      CHECK(words.find(bf16 ? " in bf16" : " in fp32") != std::string::npos);
    }
}

TEST_CASE("a few lost terms of many are found, although bf16 could not tell the sums apart") {
  using cuda::Epilogue;
  cuda::CudaArithmetic arithmetic(0);
  cuda::CudaStream stream(0);
  cuda::Trial trial(arithmetic, stream, nullptr, 0);
  cuda::Matmuls matmuls;
  const Buffer workspace = arithmetic.allocate_bytes(std::size_t{32} << 20, "matmuls");
  int checked = 0;
  for (const bool bf16 : {false, true})
    for (const bool wide : {false, true})
      for (const bool a_transposed : {false, true})
        for (const bool b_transposed : {false, true})
          for (const Epilogue epilogue :
               {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasGelu,
                Epilogue::kGeluGradient, Epilogue::kRowSums, Epilogue::kColumnSums}) {
            constexpr std::int64_t kM = 24, kN = 16, kK = 3000;
            const cuda::MatmulShape shape{.m = kM,
                                          .n = kN,
                                          .k = kK,
                                          .a_transposed = a_transposed,
                                          .b_transposed = b_transposed,
                                          .a_stride = a_transposed ? kM : kK,
                                          .b_stride = b_transposed ? kK : kN,
                                          .c_stride = kN,
                                          .bf16 = bf16,
                                          .wide = wide && bf16,
                                          .epilogue = epilogue};
            if (!matmuls.can(shape) || (wide && !bf16)) continue;
            CAPTURE(bf16);
            CAPTURE(wide);
            CAPTURE(a_transposed);
            CAPTURE(b_transposed);
            CAPTURE(static_cast<int>(epilogue));
            cuda::Schedule schedule;
            cuda::Matmul matmul{};
            matmul.shape = shape;
            schedule.forward.emplace_back().work = matmul;
            CHECK_NOTHROW(cuda::MatmulCheck(matmuls, trial, workspace.data()).require(products_of(schedule)));
            cuda_on_cpu::settings.lost_terms = 8;
            CHECK_THROWS_AS(
                cuda::MatmulCheck(matmuls, trial, workspace.data()).require(products_of(schedule)),
                WorkerError);
            cuda_on_cpu::settings.lost_terms = 0;
            ++checked;
          }
  CHECK(checked > 20);
}

}  // namespace
}  // namespace dtrun::worker::matmul_check_test
