// The one error type of the worker: what went wrong for people, and the exit code that the agent's policy
// reads. A worker may die: main catches it, reports it and exits.
#pragma once

#include <cerrno>
#include <cstring>
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

// Of a file or directory that cannot be written: EX_IOERR where it is for room or the disk's fault, and may
// be cured while the run goes on, else EX_CANTCREAT. `what` ends in its name; the message ends in the way
// out, for which `elsewhere` is what to choose.
inline WorkerError cannot_write(const std::string& what, int error,
                                const std::string& elsewhere = "another output_dir") {
  const std::string message = what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return {kExitIo, message + "; free some space or choose " + elsewhere};
  if (error == EIO) return {kExitIo, message};
  const bool forbidden = error == EACCES || error == EPERM || error == EROFS;
  return {kExitCannotCreate, message + (forbidden ? "; choose " + elsewhere + " that can be written" : "")};
}

}  // namespace dtrun::worker
