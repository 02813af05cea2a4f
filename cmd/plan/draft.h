// A plan in the making: the inputs of its parts (options, environment, machine) and the JobSpec that they
// fill in.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "agent/core/job_spec.h"
#include "cmd/machine/machine.h"
#include "cmd/options/options.h"
#include "cmd/options/values.h"
#include "proto/core/status.h"
#include "worker/config/config.h"

namespace dtrun::cmd {

struct Draft {
  const Options& typed;  // of the command line and the environment
  Options options;       // `typed`, then those of the config's launch section
  const Machine& machine;
  const Environment& environment;
  const Notice& notice;
  std::optional<worker::JobConfig> config = {};  // of the built-in trainer
  JobSpec spec = {};
  HostingQuestion meeting = {};  // where nodes meet, as far as it is read
  std::optional<GpuSight> result = {};
  std::optional<Place> place = {};  // that a cluster gave this process

  // That this process may use.
  int cpus() const { return std::min(machine.cpus, place && place->cpus ? *place->cpus : machine.cpus); }

  // Asks the machine, once.
  const GpuSight& gpus() {
    const auto nproc = options.given("nproc_per_node");
    const bool asked_for =
        (config && config->device == worker::DeviceType::kCuda) || (nproc && nproc->value == "gpu");
    if (!result) result = machine.gpus(asked_for);
    return *result;
  }

  template <typename Field, typename Parse>
  Status read(OptionName name, Field* field, Parse parse) const {
    return read_given(options.given(name), field, parse);
  }

  // Says "--role has no effect" and `why`, if the user gave the option. The launch section does not count: it
  // has only defaults.
  void no_effect(OptionName name, const std::string& why) const {
    if (const auto given = typed.given(name)) notice(given->source + " has no effect" + why);
  }
};

// Fills in some of the spec; the first failure ends the planning.
using PlanPart = Status (*)(Draft&);

inline Status run_parts(Draft& draft, std::initializer_list<PlanPart> parts) {
  for (PlanPart part : parts) {
    RETURN_IF_ERROR(part(draft));
  }
  return {};
}

}  // namespace dtrun::cmd
