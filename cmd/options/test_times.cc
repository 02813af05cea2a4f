#include "cmd/options/test_times.h"

#include <algorithm>
#include <vector>

#include "cmd/options/values.h"
#include "proto/core/nearest.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

struct NamedTime {
  const char* name;
  Times::Duration Times::*time;
};

constexpr NamedTime kTimes[] = {{"launcher_silence", &Times::launcher_silence},
                                {"answer", &Times::answer},
                                {"hello", &Times::hello},
                                {"first_call", &Times::first_call},
                                {"pause", &Times::pause},
                                {"without_coordinator", &Times::without_coordinator},
                                {"until_gone", &Times::until_gone},
                                {"flush", &Times::flush}};

Status unknown(const std::string& name) {
  std::vector<std::string> known;
  for (const NamedTime& one : kTimes) known.emplace_back(one.name);
  const std::string nearest = nearest_name(name, known);
  return usage(kTestTimes + (": unknown time \"" + name + "\"") +
               (nearest.empty() ? "" : ", did you mean " + nearest + "?"));
}

}  // namespace

Result<Times> test_times(const Environment& environment) {
  Times times;
  const char* const text = environment(kTestTimes);
  if (text == nullptr) return times;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, equals);
    const auto* const known = std::ranges::find_if(kTimes, [&](const auto& one) { return name == one.name; });
    if (known == std::end(kTimes)) return unknown(name);
    const std::string value = equals < entry.size() ? entry.substr(equals + 1) : "";
    ASSIGN_OR_RETURN(times.*known->time,
                     parse_seconds({.value = value, .source = kTestTimes + (" " + name)}));
  }
  return times;
}

}  // namespace dtrun::cmd
