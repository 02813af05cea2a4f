// JSON as text. The parser and the serializer of the library are templates: here they are compiled once,
// where each source that calls them itself costs the compiler three seconds.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dtrun {

using Json = nlohmann::ordered_json;

// is_discarded() if the text is no JSON.
Json parse_json(std::string_view text);
Json parse_json(std::istream& text);

// A member of a file's line that may lack it, or have something else there.
std::string text_at(const Json& object, const char* name);
template <typename T>
T number_at(const Json& object, const char* name, T otherwise = {}) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<T>() : otherwise;
}

// One line, or lines that are indented by `indent`. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& json, int indent = -1);
// The same with an escape for each character that is not ASCII.
std::string ascii_json_text(const Json& json, int indent = -1);

}  // namespace dtrun
