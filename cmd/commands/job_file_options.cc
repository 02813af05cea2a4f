#include "cmd/commands/job_file_options.h"

#include "cmd/options/values.h"

namespace dtrun::cmd {

std::string value_of(const std::optional<Given>& given, const char* otherwise) {
  return given ? given->value : otherwise;
}

Status read_number(const std::optional<Given>& given, int* number) {
  if (!given) return {};
  const Result<int> count = parse_int(*given, 0, "a whole number from 0 on");
  if (!count.ok()) return count.status();
  *number = count.value();
  return {};
}

}  // namespace dtrun::cmd
