#include "proto/core/status.h"

#include <cstring>

namespace dtrun {

Status Status::within(std::string_view what) const {
  if (ok()) return *this;
  return Status(exit_code_, std::string(what) + ": " + message_);
}

Status errno_status(int exit_code, std::string_view what, int error_number) {
  return Status(exit_code, std::string(what) + ": " + std::strerror(error_number));
}

}  // namespace dtrun
