// A ResNet that PyTorch trained, under torchvision's names: its file gives the same logits here.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/folder.h"
#include "tests/support/worst.h"
#include "tests/torch/torch_jobs.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/device/device.h"
#include "worker/model/program.h"

namespace dtrun::resnet_test {

using namespace dtrun::test;
namespace worker = dtrun::worker;

namespace {

constexpr int kClasses = 7;

worker::Program resnet(worker::StemType stem, worker::BlockType block, std::vector<int> depths, int width) {
  return make_program(worker::ModelConfig{.type = worker::ModelType::kResnet,
                                          .depths = std::move(depths),
                                          .layer_type = block,
                                          .embedding_size = width,
                                          .stem = stem},
                      {.shape = {3, 32, 32}, .classes = kClasses});
}

// An evaluation's loss is the logarithm of the target's probability.
double largest_difference(const worker::Program& program, const std::vector<float>& parameters,
                          const nlohmann::json& theirs) {
  const auto device = worker::make_cpu_device();
  const auto lane = device->make_lane(program, 1);
  lane->parameters_changed(parameters.data());
  double worst = 0;
  for (std::size_t n = 0; n < theirs["images"].size(); ++n) {
    const auto image = theirs["images"][n].get<std::vector<float>>();
    for (std::int32_t target = 0; target < kClasses; ++target) {
      const worker::MicrobatchStats stats =
          lane->evaluate({.samples = 1, .values = image.data(), .targets = &target});
      worst = worst_of(worst,
                       std::abs(static_cast<double>(-stats.loss) - theirs["logs"][n][target].get<double>()));
    }
  }
  return worst;
}

std::string fault_of(const std::string& file, const worker::Program& program) {
  try {
    worker::load_parameters(file, program);
  } catch (const worker::WorkerError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a state_dict of torchvision's ResNet gives its logits, with either stem and either block") {
  if (!why_no_torch().empty()) return skip(why_no_torch());
  using enum worker::StemType;
  using enum worker::BlockType;
  const Folder folder;
  const std::string file = folder / "model.safetensors";
  for (const auto& [stem, block] :
       {std::pair{kCifar, kBasic}, {kImagenet, kBasic}, {kCifar, kBottleneck}, {kImagenet, kBottleneck}}) {
    const std::string name = worker::name_of(stem), blocks = worker::name_of(block);
    CAPTURE(name);
    CAPTURE(blocks);
    Process made({python_with_torch(), kScripts + "resnet.py", file, name, blocks, "8", "2", "1", "2"},
                 {"OMP_NUM_THREADS=1"});
    REQUIRE_MESSAGE(made.wait(kLong) == 0, made.err());
    const worker::Program program = resnet(stem, block, {2, 1, 2}, 8);
    const std::vector<float> parameters = worker::load_parameters(file, program);
    CHECK(largest_difference(program, parameters, nlohmann::json::parse(made.out())) < 1e-4);

    // Each tensor that another model lacks, or has in another shape, is named.
    const auto has = [&](const worker::Program& other, const std::vector<std::string>& faults) {
      const std::string fault = fault_of(file, other);
      for (const std::string& one : faults) CHECK_MESSAGE(fault.find(one) != std::string::npos, fault);
    };
    has(resnet(stem, block, {2, 1, 3}, 8),
        {"has no tensor \"layer3.2.conv1.weight\"", "has no tensor \"layer3.2.bn1.running_mean\""});
    const std::string width = block == kBasic ? "32" : "128", less = block == kBasic ? "24" : "96";
    has(resnet(stem, block, {2, 1, 2}, 6),
        {"tensor \"bn1.weight\" has shape [8], this model needs [6]",
         "tensor \"fc.weight\" has shape [7," + width + "], this model needs [7," + less + "]"});
    if (block == kBasic)
      has(resnet(stem, kBottleneck, {2, 1, 2}, 8),
          {"tensor \"layer1.0.conv1.weight\" has shape [8,8,3,3], this model needs [8,8,1,1]",
           "has no tensor \"layer3.1.conv3.weight\"", "has no tensor \"layer1.0.downsample.1.running_var\""});
    else
      has(resnet(stem, kBasic, {2, 1, 2}, 8),
          {"tensor \"layer1.0.conv1.weight\" has shape [8,8,1,1], this model needs [8,8,3,3]",
           "tensor \"layer2.0.downsample.1.bias\" has shape [64], this model needs [16]"});
  }
}

}  // namespace dtrun::resnet_test
