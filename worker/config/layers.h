// The list /model/layers of a config.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "worker/config/faults.h"
#include "worker/config/layer.h"

namespace dtrun::worker {

// Each entry is {"TYPE": {ARGUMENTS}}, or "TYPE" if it needs none, or {"add": "NAME"}; beside the type it may
// have "name" and "input". Names are unique; unless given, a layer's is its place in the list, as in
// nn.Sequential. `input` and `add` name layers further up.
void assign_layers(const nlohmann::ordered_json& value, std::vector<Layer>* layers,
                   const std::string& pointer, Faults* faults);

// As assign_layers reads it, with all arguments that are known.
nlohmann::ordered_json json_of(std::span<const Layer> layers);

nlohmann::ordered_json layers_schema();

}  // namespace dtrun::worker
