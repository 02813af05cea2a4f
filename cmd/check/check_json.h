// What the nodes tell each other as JSON, and the report for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/check/core/facts.h"
#include "cmd/check/core/report.h"

namespace dtrun::cmd {

// What a node tells the others first.
struct Introduction {
  NodeFacts facts = {};
  int port = 0;  // of its ProbeListener
  std::string nonce = {};
};

std::string to_json(const Introduction& introduction);
std::string to_json(const std::vector<PathFacts>& paths);
// One line, without its end.
std::string report_json(const Report& report, bool strict);
// Nothing for another text.
std::optional<Introduction> introduction_of(const std::string& json);
std::optional<std::vector<PathFacts>> paths_of(const std::string& json);
std::optional<Report> report_of(const std::string& json);

}  // namespace dtrun::cmd
