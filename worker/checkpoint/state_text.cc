#include "worker/checkpoint/state_text.h"

#include <limits>

#include "proto/json/json.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

constexpr int kFormatVersion = 1;

// False if `json` is no record; null is an empty one. Numbers that are not finite are null.
bool parse_record(const Json& json, EvaluationRecord* record) {
  if (json.is_null()) return true;
  if (!json.is_object()) return false;
  bool good = true;
  const auto integer = [&](const char* name, std::int64_t* field) {
    const Json value = json.value(name, Json());
    good = good && value.is_number_integer();
    if (good) *field = value.get<std::int64_t>();
  };
  const auto number = [&](const char* name, double* field) {
    const Json value = json.value(name, Json());
    good = good && (value.is_number() || value.is_null());
    if (good) *field = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  integer("evaluated_step", &record->evaluated_step);
  integer("best_step", &record->best_step);
  integer("without_improvement", &record->without_improvement);
  number("best_loss", &record->best_loss);
  number("best_accuracy", &record->best_accuracy);
  return good;
}

// As parse_record().
bool parse_teacher(const Json& json, TeacherFile* teacher) {
  if (json.is_null()) return true;
  if (!json.is_object()) return false;
  const Json path = json.value("path", Json()), sha256 = json.value("sha256", Json());
  if (!path.is_string() || !sha256.is_string()) return false;
  *teacher = {.path = path.get<std::string>(), .sha256 = sha256.get<std::string>()};
  return true;
}

// As parse_record().
bool parse_data(const Json& json, DataIdentity* data) {
  if (json.is_null()) return true;
  if (!json.is_object()) return false;
  const Json train = json.value("train", Json()), test = json.value("test", Json());
  const Json contents = json.value("contents", Json());
  if (!train.is_number_unsigned() || !test.is_number_unsigned() || !contents.is_string()) return false;
  *data = {.train = train.get<std::int64_t>(),
           .test = test.get<std::int64_t>(),
           .contents = contents.get<std::string>()};
  return true;
}

}  // namespace

std::string to_json(const StateText& state) {
  // The config is written as an object, for people, where that loses nothing; else as text.
  Json config = parse_json(state.config_json);
  if (config.is_discarded() || json_text(config, 2) + "\n" != state.config_json) config = state.config_json;
  Json json = {{"format_version", kFormatVersion}, {"step", state.step}};
  if (!state.device.empty()) json["device"] = state.device;
  if (!state.data.contents.empty())
    json["data"] = {
        {"train", state.data.train}, {"test", state.data.test}, {"contents", state.data.contents}};
  if (!state.teacher.sha256.empty())
    json["teacher"] = {{"path", state.teacher.path}, {"sha256", state.teacher.sha256}};
  const EvaluationRecord& record = state.evaluations;
  if (record.evaluated_step >= 0)
    json["evaluations"] = {{"evaluated_step", record.evaluated_step},
                           {"best_step", record.best_step},
                           {"best_loss", record.best_loss},
                           {"best_accuracy", record.best_accuracy},
                           {"without_improvement", record.without_improvement}};
  json["config"] = config;
  return json_text(json, 2) + "\n";
}

Result<StateText> parse_state(std::string_view text) {
  const auto parsed = parse_strict_json(text);
  if (!parsed.ok()) return Status(kExitNoInput, parsed.status().message());
  const Json& json = parsed.value().value;
  const Status malformed(kExitNoInput, "is not {\"format_version\": …, \"step\": …, \"config\": …}");
  if (!json.is_object()) return malformed;
  const Json version = json.value("format_version", Json()), step = json.value("step", Json());
  const Json config = json.value("config", Json());
  if (!version.is_number_integer() || !step.is_number_unsigned() ||
      !(config.is_string() || config.is_object())) {
    return malformed;
  }
  if (version != kFormatVersion) {
    return Status(kExitNoInput, "has format_version " + json_text(version) + ", this dtrun reads " +
                                    std::to_string(kFormatVersion) + "; use the version that wrote it");
  }
  StateText state{step.get<std::int64_t>(),
                  config.is_string() ? config.get<std::string>() : json_text(config, 2) + "\n"};
  const Json device = json.value("device", Json(""));
  if (!device.is_string()) return malformed;
  state.device = device.get<std::string>();
  if (!parse_data(json.value("data", Json()), &state.data)) return malformed;
  if (!parse_teacher(json.value("teacher", Json()), &state.teacher)) return malformed;
  if (!parse_record(json.value("evaluations", Json()), &state.evaluations)) return malformed;
  return state;
}

}  // namespace dtrun::worker
