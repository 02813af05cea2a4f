// Status and Result<T>: the error model of agent, rendezvous and cmd. A status carries the exit code of the
// contract that the failure maps to, and a sentence that names the thing and the way out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/core/exit_codes.h"

namespace dtrun {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(int exit_code, std::string message) : exit_code_(exit_code), message_(std::move(message)) {}

  bool ok() const { return exit_code_ == 0; }
  int exit_code() const { return exit_code_; }
  const std::string& message() const { return message_; }

  // "what: message", the same exit code.
  Status within(std::string_view what) const;

 private:
  int exit_code_ = 0;
  std::string message_;
};

// "what: strerror(error_number)"
Status errno_status(int exit_code, std::string_view what, int error_number);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT: implicit on purpose
  Result(Status failure) : status_(std::move(failure)) {}  // NOLINT: implicit; REQUIRES: !failure.ok()

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace dtrun

// Declares or assigns to a variable the value of a Result, or returns the Result's status from the function,
// as Abseil's users know it:
//   ASSIGN_OR_RETURN(const std::string text, read_text(path));
// Several statements, so not for an `if` without braces.
#define ASSIGN_OR_RETURN(declaration, ...) \
  DTRUN_ASSIGN_OR_RETURN(DTRUN_JOIN(result_of_line_, __LINE__), declaration, __VA_ARGS__)
#define DTRUN_ASSIGN_OR_RETURN(result, declaration, ...) \
  auto result = __VA_ARGS__;                             \
  if (!result.ok()) return result.status();              \
  declaration = std::move(result).value()

// Returns the Status that the expression has, unless it is success.
#define RETURN_IF_ERROR(...) DTRUN_RETURN_IF_ERROR(DTRUN_JOIN(status_of_line_, __LINE__), __VA_ARGS__)
#define DTRUN_RETURN_IF_ERROR(status, ...)                                 \
  do {                                                                     \
    if (::dtrun::Status status = __VA_ARGS__; !status.ok()) return status; \
  } while (false)

#define DTRUN_JOIN(left, right) DTRUN_JOIN_EXPANDED(left, right)
#define DTRUN_JOIN_EXPANDED(left, right) left##right
