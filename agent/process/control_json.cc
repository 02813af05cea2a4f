#include "agent/process/control_json.h"

#include <google/protobuf/util/json_util.h>

#include "proto/core/exit_codes.h"
#include "proto/core/utf8.h"

namespace dtrun::agent {

Result<control::FromWorker> from_json_line(const std::string& line) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  control::FromWorker message;
  const auto parsed = google::protobuf::util::JsonStringToMessage(line, &message, options);
  if (!parsed.ok())
    return Status(kExitSoftware, "control protocol: a line with no message of a worker: " +
                                     printable_line(parsed.ToString()));
  if (message.has_progress() && message.progress().phase() == training::Progress::LOADING &&
      line.find("\"phase\"") == std::string::npos)
    message.mutable_progress()->set_phase(training::Progress::TRAINING);
  return message;
}

std::string to_json_line(const control::FromAgent& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string line;
  // It fails for bytes in a string that are not UTF-8 alone, and the agent's are.
  if (!google::protobuf::util::MessageToJsonString(message, &line, options).ok()) line = "{}";
  return line + "\n";
}

}  // namespace dtrun::agent
