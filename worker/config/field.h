// One value of the config: how it is read from JSON, what it may be, and how it is written. Options
// (worker/config/options.h) and the arguments of layers (worker/config/layers.h) are tables of such fields.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "worker/config/config.h"

namespace dtrun::worker {

// Optional fields that are not given are left out of the canonical text.
using FieldRef = std::variant<std::string*, std::optional<std::string>*, int*, std::optional<int>*,
                              std::int64_t*, std::optional<std::int64_t>*, std::uint64_t*, double*,
                              std::optional<double>*, bool*, std::optional<bool>*, std::vector<int>*,
                              std::vector<double>*, std::vector<Layer>*, ChoiceRef, ResumeFrom*>;

template <typename Field>
FieldRef field_ref(Field* field) {
  if constexpr (std::is_constructible_v<ChoiceRef, Field*>)
    return ChoiceRef(field);
  else
    return field;
}

// The allowed numbers: min to max. With min_open or max_open the bound itself is not allowed.
struct Bounds {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false, max_open = false;
  bool not_zero = false;
};

// The allowed spelling of a string, in three equal forms: for the parser, for people, and as a regular
// expression for the schema.
struct Spelling {
  bool (*accepts)(std::string_view) = nullptr;
  std::string_view allowed;
  std::string_view pattern;
};

// What a field takes, beside what its type says.
struct Rule {
  bool integer_too = false;  // a string that also takes an integer, spelled as a string then
  bool list_too = false;     // a choice that also takes a list of one, as transformers writes it
  Bounds range = {};         // numbers
  Spelling spelling = {};
};

// "a" or "b", in quotes.
std::string quoted_list(std::span<const std::string_view> choices);

// The values that the field takes, for messages: "1 to 1000000", "\"sgd\" or \"adamw\"". Empty: anything of
// its type.
std::string allowed_values(const FieldRef& field, const Rule& rule);
// " (allowed: 1 to 1000000)", or empty.
std::string allowed_note(const FieldRef& field, const Rule& rule);

class Faults;

// Adds the faults of `value`, at `pointer` or below; the field keeps its value then.
void assign(const nlohmann::ordered_json& value, const FieldRef& field, const Rule& rule,
            const std::string& pointer, Faults* faults);

// Null for an optional field that is not given.
nlohmann::ordered_json json_of(const FieldRef& field);

// Type, limits and default, as a JSON Schema.
nlohmann::ordered_json schema_of(const FieldRef& field, const Rule& rule);

}  // namespace dtrun::worker
