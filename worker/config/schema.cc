// The JSON Schema of a config file, from the table that also checks it.
#include <nlohmann/json.hpp>
#include <sstream>

#include "worker/config/config.h"
#include "worker/config/options.h"

namespace dtrun::worker {

namespace {

using Json = nlohmann::ordered_json;

// An integral bound without ".0", as people write it.
Json bound(double value) {
  return value == static_cast<double>(static_cast<std::int64_t>(value))
             ? Json(static_cast<std::int64_t>(value))
             : Json(value);
}

void add_range(const Range& range, Json* schema) {
  constexpr double kOpenEnd = 1e18;
  if (range.min > -kOpenEnd) (*schema)[range.min_open ? "exclusiveMinimum" : "minimum"] = bound(range.min);
  if (range.max < kOpenEnd) (*schema)[range.max_open ? "exclusiveMaximum" : "maximum"] = bound(range.max);
  if (range.not_zero) (*schema)["not"] = {{"const", 0}};
}

void add_strings(const Option& option, Json* schema) {
  Json types = Json::array({"string"});
  if (option.integer_too) types.push_back("integer");
  (*schema)["type"] = types.size() == 1 ? types[0] : types;
  if (!option.spelling.pattern.empty()) (*schema)["pattern"] = option.spelling.pattern;
  if (option.spelling.pattern.empty()) (*schema)["minLength"] = 1;
  if (option.integer_too) (*schema)["minimum"] = 1;  // a count of something
}

// Type, default and limits of one field.
struct Describe {
  const Option& option;
  Json* schema;

  void operator()(const std::string* field) const {
    add_strings(option, schema);
    if (!field->empty()) (*schema)["default"] = *field;
  }
  void operator()(const ChoiceRef& field) const {
    const Json one = {{"type", "string"}, {"enum", field.names()}};
    if (option.list_too) {
      const Json list = {{"type", "array"}, {"items", one}, {"minItems", 1}, {"maxItems", 1}};
      (*schema)["anyOf"] = Json::array({one, list});
    } else {
      schema->update(one);
    }
    if (field.get() && !option.required) (*schema)["default"] = *field.get();
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
    add_range(option.range, &element);
    (*schema)["items"] = element;
    if (!field->empty()) (*schema)["default"] = *field;
  }
  template <typename Integer>
  void operator()(const Integer* field) const {
    add_number("integer");
    (*schema)["default"] = *field;
  }

 private:
  void add_number(const char* type) const {
    (*schema)["type"] = type;
    add_range(option.range, schema);
  }
};

Json option_schema(const Option& option) {
  JobConfig defaults;
  Json schema = {{"description", option.description}};
  std::visit(Describe{option, &schema}, option.field(defaults));
  return schema;
}

Json object_schema() {
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
}

// The schema of a group's object; made where it is missing.
Json* object_at(Json* root, const std::string& group) {
  std::istringstream tokens(group);
  for (std::string token; std::getline(tokens, token, '/');) {
    Json& properties = (*root)["properties"];
    if (!properties.contains(token)) properties[token] = object_schema();
    root = &properties[token];
  }
  return root;
}

}  // namespace

std::string config_json_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "dtrun job config"}};
  root.update(object_schema());
  root["properties"]["$schema"] = {{"type", "string"}};
  for (const Option& option : config_options()) {
    const std::string group(group_of(option)), name(name_of(option));
    Json* object = object_at(&root, group);
    (*object)["properties"][name] = option_schema(option);
    if (!option.of.empty()) {
      // Other types must not have the option; these types may require it.
      const std::string type = type_of(group);
      const std::string owner = type.substr(1, type.rfind('/') - 1);  // the group that the type is in
      Json without = {{"properties", {{name, false}}}};
      if (owner != group) without = {{"properties", {{group.substr(owner.size() + 1), without}}}};
      Json rule = {{"if", {{"properties", {{type.substr(type.rfind('/') + 1), {{"enum", option.of}}}}}}},
                   {"else", without}};
      if (option.required) rule["then"] = {{"required", {name}}};
      (*object_at(&root, owner))["allOf"].push_back(rule);
    } else if (option.required) {
      (*object)["required"].push_back(name);
    }
    // A group with a required option is required itself.
    if (option.required && !group.empty()) {
      Json& required = root["required"];
      if (std::find(required.begin(), required.end(), group) == required.end()) required.push_back(group);
    }
  }
  return root.dump(2) + "\n";
}

}  // namespace dtrun::worker
