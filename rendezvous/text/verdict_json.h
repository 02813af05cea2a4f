// The verdict on the workers for programs. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// A rank of none is null.
nlohmann::ordered_json verdict_json(const Verdict& verdict);

// Throws nlohmann::json::exception where a value is of another type, or missing.
Verdict verdict_of(const nlohmann::ordered_json& json);

}  // namespace dtrun::rendezvous
