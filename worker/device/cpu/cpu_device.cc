#include <memory>
#include <mutex>
#include <string>

#include "worker/device/cpu/fingerprint.h"
#include "worker/device/cpu/footprint.h"
#include "worker/device/cpu/planned/lane.h"

namespace dtrun::worker {
namespace {

class CpuDevice : public Device {
 public:
  std::string fingerprint() const override { return fingerprint_; }
  Arithmetic& arithmetic() override { return *arithmetic_; }
  OpTimer& timer() override { return *timer_; }
  std::unique_ptr<Lane> make_lane(const Program& program, int capacity) override {
    std::call_once(has_lane_, [&] { fingerprint_ = cpu_fingerprint(program); });
    const PlanFor of_teacher =
        program.teacher == nullptr ? PlanFor() : plan_for_cpu(program.teacher->program, capacity, true);
    return make_planned_lane(program, capacity, plan_for_cpu(program, capacity), timer_->clock_of(program),
                             of_teacher);
  }

 private:
  const std::unique_ptr<Arithmetic> arithmetic_ = make_cpu_arithmetic();
  const std::shared_ptr<LaneTimer> timer_ = std::make_shared<LaneTimer>();
  std::once_flag has_lane_;  // all lanes of a device run one program, so the first lane sets the fingerprint
  std::string fingerprint_ = "cpu";
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace dtrun::worker
