// The one error type of the worker: what went wrong for people, and the exit code that the agent's policy
// reads. A worker may die: main catches it, reports it and exits.
#pragma once

#include <stdexcept>
#include <string>

#include "proto/core/exit_codes.h"

namespace dtrun::worker {

class WorkerError : public std::runtime_error {
 public:
  WorkerError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace dtrun::worker
