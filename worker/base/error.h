// The one error type of the worker: a message for people, and the exit code that the agent's policy reads. A
// worker may die: main catches the error, reports it and exits.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "proto/core/exit_codes.h"
#include "proto/core/status.h"

namespace dtrun::worker {

class WorkerError : public std::runtime_error {
 public:
  WorkerError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The value of a result; throws a failed one.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw WorkerError(result.status().exit_code(), result.status().message());
  return std::move(result).value();
}

// The error for a file or directory that cannot be written: EX_IOERR where the disk is full or broken, which
// may be cured while the run goes on, else EX_CANTCREAT. `what` ends in the file's name; the message ends in
// a remedy, which suggests `elsewhere`.
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
