// Messages of proto/control.proto as lines of JSON, for workers that have no protobuf: {"ready": {"step":
// 5}}. It is protobuf's own JSON with the names of the .proto: an enum is its name, bytes are base64, 64-bit
// numbers may be strings, and are in what the agent says. A field that is absent has its default, one that is
// not known is skipped.
#pragma once

#include <string>

#include "proto/control.pb.h"
#include "proto/core/status.h"

namespace dtrun::agent {

// An error (EX_SOFTWARE) says what in the line is no message of a worker. Progress without a phase is that of
// training.
Result<control::FromWorker> from_json_line(const std::string& line);

// With its end of line. All fields are there.
std::string to_json_line(const control::FromAgent& message);

}  // namespace dtrun::agent
