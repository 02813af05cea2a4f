// Options of a command that writes how a job is run elsewhere.
#pragma once

#include <optional>
#include <string>

#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

std::string value_of(const std::optional<Given>& given, const char* otherwise);
// Writes the option's number to `number`, which stays as it is if none is given. EX_USAGE.
Status read_number(const std::optional<Given>& given, int* number);

}  // namespace dtrun::cmd
