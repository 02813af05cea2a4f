// The canonical text of a config, and the difference between two of them.

#include "proto/json/json.h"
#include "worker/config/config.h"
#include "worker/config/options.h"
#include "worker/config/strict_json.h"

namespace dtrun::worker {

namespace {

// Pointer and value of each entry of a text, in its order; the whole text under "" if it is not JSON.
Json flattened(const std::string& text) {
  Result<StrictJson> parsed = parse_strict_json(text);
  if (!parsed.ok()) return Json{{"", text}};
  if (parsed.value().value.empty()) return Json::object();  // flatten() would name the empty object itself
  return parsed.value().value.flatten();
}

std::string shown_at(const Json& flat, const std::string& pointer) {
  const auto found = flat.find(pointer);
  return found == flat.end() ? "not given" : shown(*found);
}

std::vector<std::string> differences(const std::string& here, const std::string& there) {
  if (here == there) return {};
  const Json ours = flattened(here), theirs = flattened(there);
  std::vector<std::string> found;
  const auto compare = [&](const std::string& pointer) {
    const std::string a = shown_at(ours, pointer), b = shown_at(theirs, pointer);
    if (a != b) found.push_back(pointer + ": " + a + " here, " + b + " there");
  };
  for (const auto& [pointer, value] : ours.items()) compare(pointer);
  for (const auto& [pointer, value] : theirs.items()) {
    if (!ours.contains(pointer)) compare(pointer);
  }
  if (found.empty()) found.emplace_back("the texts differ in spacing or in order");
  return found;
}

}  // namespace

std::string to_canonical_json(const JobConfig& config) {
  JobConfig copy = config;  // the table returns mutable references to fields
  Json root = Json::object();
  for (const Option& option : config_options()) {
    const std::string group(group_of(option));
    if (group == "launch" || !applies(option, config)) continue;
    Json value = json_of(option.field(copy));
    if (!value.is_null()) root[Json::json_pointer(std::string(option.pointer))] = std::move(value);
  }
  return json_text(root, 2) + "\n";
}

std::string first_difference(const std::string& here, const std::string& there) {
  const std::vector<std::string> all = differences(here, there);
  return all.empty() ? "" : all.front();
}

std::string all_differences(const std::string& here, const std::string& there) {
  std::string text;
  for (const std::string& difference : differences(here, there)) {
    text += (text.empty() ? "" : "; ") + difference;
  }
  return text;
}

}  // namespace dtrun::worker
