#include "cmd/doctor/report_json.h"

#include <nlohmann/json.hpp>

namespace dtrun::doctor {

NLOHMANN_JSON_SERIALIZE_ENUM(Grade, {{Grade::kPassed, "passed"},
                                     {Grade::kWarning, "warning"},
                                     {Grade::kFailed, "failed"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, check, grade, nodes, text, remedy)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Section, title, note, findings)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, sections, missing)

std::string report_json(const Report& report, bool strict) {
  nlohmann::json json = report;
  json["exit_code"] = exit_code_of(report, strict);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<Report> report_of(const std::string& json) {
  try {
    return nlohmann::json::parse(json).get<Report>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dtrun::doctor
