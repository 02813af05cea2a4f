#include "worker/config/tool_request.h"

#include <utility>

#include "proto/core/utf8.h"
#include "proto/json/json.h"

namespace dtrun::worker {
namespace {

// One list for both directions.
void for_each_field(PrepareRequest& request, const auto& visit) {
  visit("directory", request.directory);
  visit("tokenizer", request.tokenizer);
  visit("eos_token", request.eos_token);
  visit("name", request.name);
  visit("shard_tokens", request.shard_tokens);
  visit("val_fraction", request.val_fraction);
  visit("json_field", request.json_field);
  visit("files", request.files);
  visit("threads", request.threads);
}

void for_each_field(SampleRequest& request, const auto& visit) {
  visit("run", request.run);
  visit("prompt", request.prompt);
  visit("max_new_tokens", request.max_new_tokens);
  visit("temperature", request.temperature);
  visit("top_k", request.top_k);
  visit("top_p", request.top_p);
  visit("seed", request.seed);
}

void for_each_field(ExportRequest& request, const auto& visit) {
  visit("run", request.run);
  visit("directory", request.directory);
  visit("format", request.format);
  visit("quantize", request.quantize);
  visit("evaluate", request.evaluate);
}

void for_each_field(ProfileRequest& request, const auto& visit) {
  visit("config", request.config);
  visit("lanes", request.lanes);
  visit("steps", request.steps);
  visit("json", request.json);
  visit("gpu", request.gpu);
}

Json json_of(auto number) { return number; }
Json json_of(const std::optional<int>& number) { return number ? Json(*number) : Json(); }
// As numbers where the bytes are not UTF-8, which JSON must be.
Json json_of(const std::string& text) {
  if (invalid_utf8_at(text)) return std::vector<unsigned char>(text.begin(), text.end());
  return text;
}

void read(const Json& json, auto* number) { json.get_to(*number); }
void read(const Json& json, std::optional<int>* number) {
  if (!json.is_null()) *number = json.get<int>();
}
void read(const Json& json, std::string* text) {
  if (json.is_string()) {
    *text = json.get<std::string>();
  } else {
    const auto bytes = json.get<std::vector<unsigned char>>();
    text->assign(bytes.begin(), bytes.end());
  }
}

}  // namespace

template <typename Request>
std::vector<std::string> arguments_of(const Request& request) {
  Json json = Json::object();
  Request copy = request;
  for_each_field(copy, [&](const char* name, const auto& field) { json[name] = json_of(field); });
  std::vector<std::string> arguments{Request::kTool, json_text(json)};
  arguments.insert(arguments.end(), request.words.begin(), request.words.end());
  return arguments;
}

template <typename Request>
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  try {
    const Json json = parse_json(arguments[0]);
    Request request{.words = {arguments.begin() + 1, arguments.end()}};
    for_each_field(request, [&](const char* name, auto& field) { read(json.at(name), &field); });
    return request;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

template std::vector<std::string> arguments_of(const PrepareRequest&);
template std::vector<std::string> arguments_of(const SampleRequest&);
template std::vector<std::string> arguments_of(const ExportRequest&);
template std::vector<std::string> arguments_of(const ProfileRequest&);
template std::optional<PrepareRequest> request_of(const std::vector<std::string>&);
template std::optional<SampleRequest> request_of(const std::vector<std::string>&);
template std::optional<ExportRequest> request_of(const std::vector<std::string>&);
template std::optional<ProfileRequest> request_of(const std::vector<std::string>&);

}  // namespace dtrun::worker
