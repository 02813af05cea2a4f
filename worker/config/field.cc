#include "worker/config/field.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "proto/core/nearest.h"
#include "proto/json/json.h"
#include "worker/config/faults.h"
#include "worker/config/layers.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {
namespace {

// ---- what it may be

std::string number_text(double value) {
  // The first test keeps the conversion within range.
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return json_text(value);
}

std::string range_text(const Bounds& range) {
  if (range.not_zero) return number_text(range.min) + ", or 1 to " + number_text(range.max);
  const std::string from = (range.min_open ? "more than " : "") + number_text(range.min);
  if (range.max == std::numeric_limits<double>::infinity()) {
    return range.min_open ? from : from + " or more";
  }
  const std::string to = number_text(range.max);
  if (range.min_open) return from + (range.max_open ? ", less than " : ", at most ") + to;
  return from + (range.max_open ? " or more, less than " : " to ") + to;
}

// ---- from JSON; each function returns the fault, or an empty text

struct Expected {
  const Rule& rule;
  std::string note;  // what is allowed, behind a message
};

std::string wrong_type(const Json& value, std::string_view type, const Expected& expected) {
  std::string found = shown(value);
  if (!value.is_null()) found += " (" + std::string(type_name(value)) + ")";
  return "found " + found + ", wanted " + std::string(type) + expected.note;
}

std::string out_of_range(const Json& value, const Expected& expected) {
  return shown(value) + " is out of range" + expected.note;
}

// True for an override such as 1e400, which a JSON number cannot hold.
bool is_beyond_double(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  char* end = nullptr;
  return std::isinf(std::strtod(text.c_str(), &end)) && *end == '\0' &&
         std::isdigit(static_cast<unsigned char>(text.back()));  // not "inf"
}

bool in_range(double value, const Bounds& range) {
  const bool high_enough = range.min_open ? value > range.min : value >= range.min;
  const bool low_enough = range.max_open ? value < range.max : value <= range.max;
  return high_enough && low_enough && !(range.not_zero && value == 0);
}

template <typename Integer>
std::string assign_integer(const Json& value, const Expected& expected, Integer* field) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // The parser reads JSON integers beyond 64 bits as double too.
    if (std::abs(number) >= 1e15) return shown(value) + " is out of an integer's range" + expected.note;
    if (number == std::floor(number)) {
      return "found " + shown(value) + ", wanted an integer: write " +
             std::to_string(static_cast<std::int64_t>(number)) + expected.note;
    }
  }
  if (!value.is_number_integer()) return wrong_type(value, "an integer", expected);
  if (!in_range(value.get<double>(), expected.rule.range)) return out_of_range(value, expected);
  // The table's ranges lie within int and int64; seed takes the whole of uint64 and its JSON type says so.
  *field = value.get<Integer>();
  return "";
}

std::string check_string(const Json& value, const Expected& expected) {
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty()) return "is empty" + expected.note;
  if (text.find('\0') != std::string::npos) return shown(value) + " contains a zero byte";
  if (expected.rule.spelling.accepts && !expected.rule.spelling.accepts(text)) {
    return shown(value) + " is not understood" + expected.note;
  }
  return "";
}

std::string assign_string(Json value, const Expected& expected, std::string* field) {
  if (expected.rule.integer_too && value.is_number_integer()) value = json_text(value);
  if (!value.is_string()) {
    return wrong_type(value, expected.rule.integer_too ? "an integer or a string" : "a string", expected);
  }
  std::string fault = check_string(value, expected);
  if (fault.empty()) *field = value.get<std::string>();
  return fault;
}

std::string assign_choice(const Json& given, const Expected& expected, const ChoiceRef& field) {
  const Json& value = expected.rule.list_too && given.is_array() && given.size() == 1 ? given[0] : given;
  std::string text;
  std::string fault = assign_string(value, expected, &text);
  if (!fault.empty()) return fault;
  const auto found = std::ranges::find(field.names(), text);
  if (found != field.names().end()) {
    field.set(found - field.names().begin());
    return "";
  }
  const std::vector<std::string> names(field.names().begin(), field.names().end());
  const std::string nearest = nearest_name(text, names);
  const std::string guess = nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
  return shown(value) + " is not known" + expected.note + guess;
}

// Takes true and false too, as transformers does.
std::string assign_resume_from(const Json& value, const Expected& expected, ResumeFrom* field) {
  std::string text = value == false ? "none" : "auto";
  std::string fault = value.is_boolean() ? "" : assign_string(value, expected, &text);
  if (fault.empty()) *field = ResumeFrom(text);
  return fault;
}

// One overload for each kind of field.
struct Assign {
  const Json& value;
  const Expected& expected;

  std::string operator()(std::string* field) const { return assign_string(value, expected, field); }
  std::string operator()(const ChoiceRef& field) const { return assign_choice(value, expected, field); }
  std::string operator()(ResumeFrom* field) const { return assign_resume_from(value, expected, field); }
  std::string operator()(int* field) const { return assign_integer(value, expected, field); }
  std::string operator()(std::int64_t* field) const { return assign_integer(value, expected, field); }
  std::string operator()(std::uint64_t* field) const { return assign_integer(value, expected, field); }
  template <typename T>
  std::string operator()(std::optional<T>* field) const {
    T given{};
    std::string fault = (*this)(&given);
    if (fault.empty()) *field = std::move(given);
    return fault;
  }
  std::string operator()(double* field) const {
    if (is_beyond_double(value)) return out_of_range(value, expected);
    if (!value.is_number()) return wrong_type(value, "a number", expected);
    const double number = value.get<double>();
    if (!in_range(number, expected.rule.range)) return out_of_range(value, expected);
    *field = number + 0.0;  // -0 becomes 0
    return "";
  }
  std::string operator()(std::vector<int>* field) const {
    if (!value.is_array()) return wrong_type(value, "a list of integers", expected);
    field->clear();
    for (const Json& element : value) {
      std::string fault = assign_integer(element, expected, &field->emplace_back());
      if (!fault.empty()) return fault;
    }
    return "";
  }
  // One number, or a list of some.
  std::string operator()(std::vector<double>* field) const {
    std::vector<double> numbers;
    for (const Json& element : value.is_array() ? value : Json::array({value})) {
      std::string fault = Assign{element, expected}(&numbers.emplace_back());
      if (!fault.empty()) return fault;
    }
    if (numbers.empty()) return "is empty" + expected.note;
    *field = std::move(numbers);
    return "";
  }
  std::string operator()(bool* field) const {
    if (!value.is_boolean()) return wrong_type(value, "a boolean", expected);
    *field = value.get<bool>();
    return "";
  }
  std::string operator()(std::vector<Layer>*) const { return ""; }  // assign() adds the faults of each
};

// ---- to JSON

struct ToJson {
  Json operator()(const ChoiceRef& field) const { return field.get() ? Json(*field.get()) : Json(); }
  Json operator()(const ResumeFrom* field) const { return field->text; }
  template <typename T>
  Json operator()(const T* field) const {
    return *field;
  }
  template <typename T>
  Json operator()(const std::optional<T>* field) const {
    return *field ? Json(**field) : Json();
  }
  Json operator()(const std::vector<double>* field) const {
    return field->size() == 1 ? Json(field->front()) : Json(*field);
  }
  Json operator()(const std::vector<Layer>* field) const { return json_of(std::span(*field)); }
};

// ---- its schema

// An integral bound without ".0", as people write it.
Json bound(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? Json(static_cast<std::int64_t>(value))
             : Json(value);
}

void add_range(const Bounds& range, Json* schema) {
  constexpr double kOpenEnd = 1e18;
  if (range.min > -kOpenEnd) (*schema)[range.min_open ? "exclusiveMinimum" : "minimum"] = bound(range.min);
  if (range.max < kOpenEnd) (*schema)[range.max_open ? "exclusiveMaximum" : "maximum"] = bound(range.max);
  if (range.not_zero) (*schema)["not"] = {{"const", 0}};
}

void add_strings(const Rule& rule, Json* schema) {
  Json types = Json::array({"string"});
  if (rule.integer_too) types.push_back("integer");
  (*schema)["type"] = types.size() == 1 ? types[0] : types;
  if (!rule.spelling.pattern.empty()) (*schema)["pattern"] = rule.spelling.pattern;
  if (rule.spelling.pattern.empty()) (*schema)["minLength"] = 1;
  if (rule.integer_too) (*schema)["minimum"] = 1;  // a count of something
}

// Type, default and limits of one field.
struct Describe {
  const Rule& rule;
  Json* schema;

  void operator()(const std::string* field) const {
    add_strings(rule, schema);
    if (!field->empty()) (*schema)["default"] = *field;
  }
  void operator()(const ChoiceRef& field) const {
    const Json one = {{"type", "string"}, {"enum", field.names()}};
    if (rule.list_too) {
      const Json list = {{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", 1}};
      (*schema)["anyOf"] = Json::array({one, list});
    } else {
      schema->update(one);
    }
    if (field.get()) (*schema)["default"] = *field.get();
  }
  void operator()(const ResumeFrom* field) const {
    (*schema)["type"] = {"string", "boolean"};
    (*schema)["minLength"] = 1;
    (*schema)["default"] = field->text;
  }
  template <typename T>
  void operator()(const std::optional<T>*) const {
    const T none{};
    (*this)(&none);
    schema->erase("default");
  }
  void operator()(const bool* field) const {
    (*schema)["type"] = "boolean";
    (*schema)["default"] = *field;
  }
  void operator()(const double* field) const {
    add_number("number");
    (*schema)["default"] = *field;
  }
  void operator()(const std::vector<int>* field) const {
    (*schema)["type"] = "array";
    Json element = {{"type", "integer"}};
    add_range(rule.range, &element);
    (*schema)["items"] = element;
    if (!field->empty()) (*schema)["default"] = *field;
  }
  void operator()(const std::vector<double>* field) const {
    Json one = {{"type", "number"}};
    add_range(rule.range, &one);
    (*schema)["anyOf"] = Json::array({one, Json{{"type", "array"}, {"items", one}, {"minItems", 1}}});
    (*schema)["default"] = ToJson()(field);
  }
  void operator()(const std::vector<Layer>*) const { *schema = layers_schema(); }
  template <typename Integer>
  void operator()(const Integer* field) const {
    add_number("integer");
    (*schema)["default"] = *field;
  }

 private:
  void add_number(const char* type) const {
    (*schema)["type"] = type;
    add_range(rule.range, schema);
  }
};

}  // namespace

std::string quoted_list(std::span<const std::string_view> choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += '"' + std::string(choices[i]) + '"';
  }
  return text;
}

std::string allowed_values(const FieldRef& field, const Rule& rule) {
  if (const auto* const choice = std::get_if<ChoiceRef>(&field)) return quoted_list(choice->names());
  if (rule.spelling.accepts) return std::string(rule.spelling.allowed);
  if (std::holds_alternative<ResumeFrom*>(field)) return R"("auto", "none" or a checkpoint's directory)";
  if (rule.range.min == -std::numeric_limits<double>::infinity()) return "";
  return range_text(rule.range);
}

std::string allowed_note(const FieldRef& field, const Rule& rule) {
  const std::string allowed = allowed_values(field, rule);
  return allowed.empty() ? "" : " (allowed: " + allowed + ")";
}

void assign(const Json& value, const FieldRef& field, const Rule& rule, const std::string& pointer,
            Faults* faults) {
  if (auto* const* const layers = std::get_if<std::vector<Layer>*>(&field))
    return assign_layers(value, *layers, pointer, faults);
  const Expected expected{.rule = rule, .note = allowed_note(field, rule)};
  const std::string fault = std::visit(Assign{value, expected}, field);
  if (!fault.empty()) faults->add(pointer, fault);
}

Json json_of(const FieldRef& field) { return std::visit(ToJson(), field); }

Json schema_of(const FieldRef& field, const Rule& rule) {
  Json schema = Json::object();
  std::visit(Describe{rule, &schema}, field);
  return schema;
}

}  // namespace dtrun::worker
