// The reference itself is checked against the definition of a derivative.
#include "tests/worker/model/reference.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/worker/model/programs.h"

namespace dtrun::reference_test {

using namespace dtrun::worker;

TEST_CASE("the reference's gradient is the central difference of its loss") {
  std::vector<NamedProgram> programs = test_programs();
  for (NamedProgram& planned : planned_programs()) programs.push_back(std::move(planned));
  for (const NamedProgram& named : programs) {
    const Program& program = named.program;
    CAPTURE(named.name);
    const Problem problem(program, 2);
    std::vector<double> parameters(problem.parameters.begin(), problem.parameters.end());
    const auto result = reference::run(program, parameters, problem.microbatch(2));
    const std::size_t stride = program.size / 25 + 1;  // some of each parameter; all would take minutes
    for (std::size_t i = program.running; i < program.size; i += stride) {
      constexpr double kStep = 1e-6;
      const double value = parameters[i];
      parameters[i] = value + kStep;
      const double above = reference::run(program, parameters, problem.microbatch(2)).loss;
      parameters[i] = value - kStep;
      const double below = reference::run(program, parameters, problem.microbatch(2)).loss;
      parameters[i] = value;
      CAPTURE(i);
      CHECK((above - below) / (2 * kStep) == doctest::Approx(result.gradient[i]).epsilon(1e-6).scale(1));
    }
  }
}

TEST_CASE("equal classes cost log(classes) a sample") {
  const Program program = Chain({1, 2, 2}, 4).flatten().linear(4).loss();
  const std::vector<double> parameters(program.size, 0.0);
  const std::vector<float> x(8, 1.0f);
  const std::vector<std::int32_t> labels{0, 3};
  const auto result =
      reference::run(program, parameters, {.samples = 2, .values = x.data(), .targets = labels.data()});
  CHECK(result.loss == doctest::Approx(2 * std::log(4.0)));
  CHECK(result.correct == 1);  // the first of equal outputs counts as the largest
}

}  // namespace dtrun::reference_test
