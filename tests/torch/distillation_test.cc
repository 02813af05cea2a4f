// Training with a teacher: a lane's loss and gradient are PyTorch's, however the logits of teacher and
// student lie in memory.
#include <cmath>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/torch/torch_jobs.h"
#include "tests/worker/model/programs.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/device/device.h"

namespace dtrun::distillation_test {

using namespace dtrun::test;
using namespace dtrun::worker;

namespace {

constexpr int kSamples = 11;  // of 16 rows, so that the last group is padded

Program convnet() { return make_program({.channels = {6, 5}}, {.shape = {1, 28, 28}, .classes = 10}); }
Program mlp(ActivationType activation) {
  return make_program({.type = ModelType::kMlp, .hidden_sizes = {24}, .activation = activation},
                      {.shape = {1, 28, 28}, .classes = 10});
}

std::vector<float> values_of(const Program& program, std::uint64_t seed) {
  std::vector<float> flat(program.size);
  initialize_parameters(program, seed, flat);
  for (float& value : flat) value *= 3;  // outputs that differ
  return flat;
}

}  // namespace

TEST_CASE("loss and gradient of a student beside its teacher are PyTorch's") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  // A convnet's values lie in groups of samples, those of a chain with GELU in rows.
  const std::vector<std::pair<Program, Program>> pairs{{convnet(), mlp(ActivationType::kGelu)},
                                                       {mlp(ActivationType::kGelu), convnet()},
                                                       {mlp(ActivationType::kRelu), convnet()}};
  for (const auto& [of_student, of_teacher] : pairs) {
    Program student = of_student;
    CAPTURE(student.model);
    const Folder folder;
    const std::vector<float> parameters = values_of(student, 1);
    Teacher teacher{.program = of_teacher,
                    .parameters = values_of(of_teacher, 2),
                    .path = {},
                    .sha256 = {},
                    .temperature = 2.5f,
                    .alpha = 0.7f};
    save_model(folder / "student", student, parameters);
    save_model(folder / "teacher", of_teacher, teacher.parameters);
    student.label_smoothing = 0.1f;
    student.teacher = std::make_shared<Teacher>(teacher);

    const std::vector<float> images = random_values(7, 16 * 784);
    std::vector<std::int32_t> targets(16);
    for (int i = 0; i < 16; ++i) targets[i] = i * 7 % 10;
    std::vector<float> out(kStatisticsFloats + student.size);
    const auto lane = make_cpu_device()->make_lane(student, 16);
    lane->parameters_changed(parameters.data());
    lane->train({.samples = kSamples, .values = images.data(), .targets = targets.data()}, out.data(),
                [](int) {});
    lane->stream().wait();
    save_model(folder / "gradient", student, std::span(out).subspan(kStatisticsFloats));
    std::ofstream(folder / "images", std::ios::binary)
        .write(reinterpret_cast<const char*>(images.data()), kSamples * 784 * 4);

    Process theirs({python_with_torch(), kScripts + "distillation.py", folder.path().string(), "2.5", "0.7",
                    "0.1", std::to_string(out[0])},
                   {"OMP_NUM_THREADS=1"});
    REQUIRE_MESSAGE(theirs.wait(kLong) == 0, theirs.err());
    CHECK_MESSAGE(std::stod(theirs.out()) < 1e-5, theirs.out());
  }
}

}  // namespace dtrun::distillation_test
