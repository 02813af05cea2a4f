#include "proto/json/json.h"

namespace dtrun {

Json parse_json(std::string_view text) { return Json::parse(text, nullptr, false); }
Json parse_json(std::istream& text) { return Json::parse(text, nullptr, false); }

std::string text_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}
std::string ascii_json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace dtrun
