// A struct as a JSON object and back, from one list of its fields; in the struct's namespace, where the
// library looks for the two functions. An optional field that is empty is null.
//
//   DTRUN_JSON(MigInstance, uuid, name, memory)
#pragma once

#include <optional>
#include <string_view>

#include "proto/json/json.h"

template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(dtrun::Json& json, const std::optional<T>& value) {
    json = value ? dtrun::Json(*value) : dtrun::Json(nullptr);
  }
  static void from_json(const dtrun::Json& json, std::optional<T>& value) {
    value = json.is_null() ? std::nullopt : std::optional(json.get<T>());
  }
};

namespace dtrun {

// Nothing if the text is not the JSON of a T.
template <typename T>
std::optional<T> parsed(std::string_view text) {
  try {
    return parse_json(text).get<T>();
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dtrun

// The library's own macro, which is for JSON that sorts its keys.
#define DTRUN_JSON(Struct, ...)                                                          \
  inline void to_json(::dtrun::Json& nlohmann_json_j, const Struct& nlohmann_json_t) {   \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))             \
  }                                                                                      \
  inline void from_json(const ::dtrun::Json& nlohmann_json_j, Struct& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_FROM, __VA_ARGS__))           \
  }
