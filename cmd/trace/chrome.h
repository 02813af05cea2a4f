// A trace of a run as JSON that ui.perfetto.dev and chrome://tracing open: a process for each rank, with
// tracks for its steps, lanes, messages and checkpoints, all on the coordinator's clock. Pure.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <string>

#include "cmd/trace/record.h"

namespace dtrun::cmd {

// `steps`: as many as were asked for. Its otherData has `clock_error_us`, by which times of different hosts
// may be wrong against each other, `clocks` by node: what was added to its times, and `missing`, sentences.
std::string chrome_json(const TraceRecord& record, const std::string& run_id, int steps);

}  // namespace dtrun::cmd
