#include "agent/system/core_files.h"

#include <optional>

namespace dtrun::agent {
namespace {

std::optional<rlimit> before;

rlimit current() {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  return limit;
}

}  // namespace

// Less than a header is no file; and where core_pattern names a program, 0 would be no limit, but 1 is
// (core(5)).
void leave_no_core_file() {
  if (before) return;
  before = current();
  const rlimit none{before->rlim_max == 0 ? 0 : rlim_t{1}, before->rlim_max};
  setrlimit(RLIMIT_CORE, &none);
}

rlimit core_file_limit() { return before.value_or(current()); }

}  // namespace dtrun::agent
