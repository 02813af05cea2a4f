// The variable by which the tests of whole programs shorten Times. For nobody else: help and docs do not have
// it.
#pragma once

#include "cmd/options/given.h"
#include "proto/core/status.h"
#include "proto/core/times.h"

namespace dtrun::cmd {

inline constexpr char kTestTimes[] = "DTRUN_TEST_TIMES";

// Its value is "launcher_silence=2,pause=0.5": names of Times, in seconds. EX_USAGE if it is anything else.
Result<Times> test_times(const Environment& environment);

}  // namespace dtrun::cmd
