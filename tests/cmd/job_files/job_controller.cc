#include "tests/cmd/job_files/job_controller.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <sstream>
#include <stdexcept>

namespace dtrun::test {
namespace {

using Json = nlohmann::json;

constexpr int kFirstWait = 10, kLongestWait = 600;  // seconds

// A mapping or list as YAML writes it within one line: JSON but for its words without quotes.
Json from_flow(const std::string& text) {
  std::string json;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') quoted = !quoted;
    std::size_t end = at;
    while (!quoted && end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0)) ++end;
    const bool is_word = end > at && std::isalpha(static_cast<unsigned char>(c)) != 0;
    const std::string token = text.substr(at, std::max<std::size_t>(end - at, 1));
    json += is_word ? "\"" + token + "\"" : token;
    at += token.size();
  }
  return Json::parse(json);
}

// The number behind "  KEY: " of the Job's spec; nothing if no line does.
std::optional<int> number_in(const std::string& manifest, const std::string& key) {
  const std::string begin = "\n  " + key + ": ";
  const std::size_t at = manifest.find(begin);
  return at == std::string::npos ? std::nullopt
                                 : std::optional(std::stoi(manifest.substr(at + begin.size())));
}

Json rules_in(const std::string& manifest) {
  constexpr char kBegin[] = "    - {action:";
  Json rules = Json::array();
  std::istringstream lines(manifest);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kBegin)) rules.push_back(from_flow(line.substr(6, line.rfind('}') - 5)));
  if (rules.empty()) throw std::runtime_error("no podFailurePolicy");
  return rules;
}

bool matches(const Json& rule, const EndedPod& pod) {
  if (rule.contains("onPodConditions")) {
    const Json& patterns = rule["onPodConditions"];
    return std::any_of(patterns.begin(), patterns.end(), [&](const Json& pattern) {
      const std::string type = pattern.at("type");
      return pattern.at("status") == "True" && std::ranges::count(pod.conditions, type) > 0;
    });
  }
  const Json& codes = rule.at("onExitCodes");
  const auto values = codes.at("values").get<std::vector<int>>();
  return (std::ranges::count(values, pod.exit_code) > 0) == (codes.at("operator") == "In");
}

// Doubles with each failure that went before.
int wait_after(int failures) {
  int wait = kFirstWait;
  for (int i = 1; i < failures && wait < kLongestWait; ++i) wait = std::min(2 * wait, kLongestWait);
  return wait;
}

}  // namespace

JobController::JobController(const std::string& manifest)
    : rules_(rules_in(manifest)),
      limit_(number_in(manifest, "backoffLimit")),
      limit_per_index_(number_in(manifest, "backoffLimitPerIndex")),
      max_failed_indexes_(number_in(manifest, "maxFailedIndexes")) {}

// The first rule that matches; a pod that none matches counts.
std::string JobController::action_for(const EndedPod& pod) const {
  const auto rule = std::ranges::find_if(rules_, [&](const Json& one) { return matches(one, pod); });
  return rule == rules_.end() ? "Count" : rule->at("action").get<std::string>();
}

std::string JobController::limit_exceeded() const {
  int all = 0, failed_indexes = 0;
  for (const auto& [index, losses] : losses_) {
    all += losses.counted;
    if (limit_per_index_ && losses.counted > *limit_per_index_) ++failed_indexes;
  }
  if (limit_ && all > *limit_) return "BackoffLimitExceeded";
  return max_failed_indexes_ && failed_indexes > *max_failed_indexes_ ? "MaxFailedIndexesExceeded" : "";
}

// Pods that are ignored lengthen the wait as well. Without a limit per index all pods of the Job do.
PodDecision JobController::ends(const EndedPod& pod) {
  const std::string action = action_for(pod);
  if (action == "FailJob") return {.failed = "PodFailurePolicy", .counts = true};
  const bool counts = action != "Ignore";
  ++(counts ? losses_[pod.index].counted : losses_[pod.index].ignored);
  int failures = 0;
  for (const auto& [index, losses] : losses_)
    if (!limit_per_index_ || index == pod.index) failures += losses.counted + losses.ignored;
  return {.failed = limit_exceeded(), .counts = counts, .wait_s = wait_after(failures)};
}

}  // namespace dtrun::test
