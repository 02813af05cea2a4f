// The text of a checkpoint's trainer_state.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/core/status.h"
#include "worker/core/evaluation_record.h"

namespace dtrun::worker {

// The file that a teacher's parameters were read from.
struct TeacherFile {
  std::string path, sha256;  // both empty: there is no teacher
};

// What tells the data of one run from that of another. Empty contents: an older dtrun did not write it.
struct DataIdentity {
  std::int64_t train = 0, test = 0;  // samples
  std::string contents = {};         // a hash of both
  bool operator==(const DataIdentity&) const = default;
};

// {"format_version", "step", "device", "data", "teacher", "evaluations", "config"}; "teacher" and
// "evaluations" are missing if there were none.
struct StateText {
  std::int64_t step = 0;
  std::string config_json;
  EvaluationRecord evaluations = {};
  std::string device = {};
  TeacherFile teacher = {};
  DataIdentity data = {};
};
std::string to_json(const StateText& state);
Result<StateText> parse_state(std::string_view text);  // EX_NOINPUT

}  // namespace dtrun::worker
