// Goodput for programs: its share of the time and the seconds of each kind, by their names. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "proto/core/goodput.h"

namespace dtrun::rendezvous {

nlohmann::ordered_json goodput_json(const Goodput& goodput);

// What is missing is 0. Throws nlohmann::json::exception where a value is no number.
Goodput goodput_of(const nlohmann::ordered_json& json);

}  // namespace dtrun::rendezvous
