// A struct as a JSON object and back, from one list of its fields; in the struct's namespace, where the
// library looks for the two functions. An optional field that is empty is null.
//
//   DTRUN_JSON(MigInstance, uuid, name, memory)
//
// DTRUN_JSON_KNOWN, with the same arguments, writes alone, and leaves out what is empty.
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

// An optional field without a value, or an empty text or list, tells nothing.
template <typename T>
bool is_known(const T& value) {
  if constexpr (requires { value.has_value(); })
    return value.has_value();
  else if constexpr (requires { value.empty(); })
    return !value.empty();
  else
    return true;
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

#define DTRUN_JSON_IF_KNOWN(name) \
  if (::dtrun::is_known(nlohmann_json_t.name)) nlohmann_json_j[#name] = nlohmann_json_t.name;
#define DTRUN_JSON_KNOWN(Struct, ...)                                                  \
  inline void to_json(::dtrun::Json& nlohmann_json_j, const Struct& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(DTRUN_JSON_IF_KNOWN, __VA_ARGS__))        \
  }
