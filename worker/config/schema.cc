// The JSON Schema of a config file, from the table that also checks it.
#include <sstream>

#include "proto/json/json.h"
#include "worker/config/config.h"
#include "worker/config/options.h"

namespace dtrun::worker {

namespace {

Json option_schema(const Option& option) {
  JobConfig defaults;
  Json schema = {{"description", option.description}};
  schema.update(schema_of(option.field(defaults), option.rule()));
  if (option.required) schema.erase("default");
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
  return json_text(root, 2) + "\n";
}

}  // namespace dtrun::worker
