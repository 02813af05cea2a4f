// The last operations of a worker's exchange with its peers (proto/base/operation_ring.h), as a file for
// people: written when it ends before its time, or stands still.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "proto/core/operation.h"

namespace dtrun::agent {

// One JSON object a line, oldest first. `now`: ns of CLOCK_MONOTONIC, at the time `wall` in seconds since
// 1970.
std::string operations_text(const std::vector<Operation>& operations, std::int64_t now, double wall);

// Replaces FOLDER/last_operations.jsonl. Does nothing without a folder, or without operations; a file that
// cannot be written is left out.
void write_last_operations(const std::filesystem::path& folder, const std::vector<Operation>& operations);

}  // namespace dtrun::agent
