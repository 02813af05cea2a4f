// Signs of life: each piece of the trainer's work gives one, so none is longer without than the piece takes.
#include "worker/base/pulse.h"

#include "tests/worker/trainer/jobs.h"
#include "worker/device/device.h"
#include "worker/model/program.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/gradient_step.h"

namespace dtrun::worker::pulse_test {
namespace {

// The first `size` samples of a data set; notes how many signs of life there were whenever a microbatch is
// filled.
class Watched final : public Dataset {
 public:
  Watched(const Dataset& data, std::int64_t size) : data_(data), size_(size) {}
  std::int64_t size() const override { return size_; }
  SampleSpec spec() const override { return data_.spec(); }
  std::string values() const override { return data_.values(); }
  void fill(std::span<const std::uint32_t> samples, const SampleRows& rows) const override {
    signs.push_back(Pulse::read());
    data_.fill(samples, rows);
  }
  mutable std::vector<std::uint64_t> signs;

 private:
  const Dataset& data_;
  const std::int64_t size_;
};

// One more with every microbatch, from `first` on.
std::vector<std::uint64_t> ascending(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> signs(count);
  for (std::size_t i = 0; i < count; ++i) signs[i] = first + i;
  return signs;
}

// One worker with one lane, which waits for nobody: only its computation can beat.
struct Alone {
  Alone() {
    config.micro_batch_size = 4;
    config.global_batch_size = 32;
  }
  Job job;
  TrainConfig config;
  const std::unique_ptr<Dataset> data = load_dataset(job.config("x").data, Split::kTrain);
  const Program program = make_program(ModelConfig{.type = ModelType::kConvnet}, data->spec());
  const std::unique_ptr<Device> device = make_cpu_device();
  LaneTeam lanes{*device, program, 1, 4};
  const std::unique_ptr<ProcessGroup> group = make_single_process_group();
  const std::vector<float> parameters = std::vector<float>(program.size, 0.01f);
};

TEST_CASE("a step of training is a sign of life per microbatch") {
  Alone alone;
  const Watched data(*alone.data, 32);
  StepClock clock;
  GradientStep step(alone.config, alone.program, data, *alone.group, *alone.device, alone.lanes, clock);
  const std::uint64_t before = Pulse::read();
  step.run({0, 0, 32, 8}, alone.parameters.data());
  CHECK(data.signs == ascending(before, 8));
  CHECK(Pulse::read() == before + 8);
}

TEST_CASE("an evaluation is a sign of life per microbatch") {
  Alone alone;
  const Watched data(*alone.data, 50);
  const std::uint64_t before = Pulse::read();
  const auto result =
      evaluate(data, 4, alone.parameters.data(), *alone.group, alone.lanes, [] { return false; });
  REQUIRE(result.has_value());
  CHECK(data.signs == ascending(before, 13));
  CHECK(Pulse::read() == before + 13);
}

TEST_CASE("waiting for peers is a sign of life as long as it lasts, and no longer") {
  const std::uint64_t before = Pulse::read();
  CHECK(Pulse::read() == before);
  {
    const Pulse::WaitsForPeers waits;
    CHECK(Pulse::read() == before + 1);
    const Pulse::WaitsForPeers within;
    CHECK(Pulse::read() == before + 2);
  }
  const std::uint64_t after = Pulse::read();
  CHECK(Pulse::read() == after);
}

}  // namespace
}  // namespace dtrun::worker::pulse_test
