// Text for people about how a job ended. Pure; agent/decide.cc says when, the console where.
#pragma once

#include <string>

#include "agent/outcome.h"

namespace dtrun::agent {

// Who failed first and how, its last words, restarts used, and who merely followed. Several lines without a
// final newline.
std::string failure_report(const JobEnd& end, int max_restarts);

// "done: 2345 steps, test accuracy 89.1 %, loss 0.302, model in runs/x/model.safetensors"
std::string done_line(const Completion& completion);

// "SIGTERM", "signal 42"
std::string describe_signal(int number);

}  // namespace dtrun::agent
