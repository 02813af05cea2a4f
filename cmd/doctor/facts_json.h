// Facts between nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/doctor/core/facts.h"
#include "cmd/doctor/peer_link.h"

namespace dtrun::doctor {

// What a node tells the others first.
struct Introduction {
  NodeFacts facts;
  Peer peer;
};

std::string to_json(const Introduction& introduction);
std::string to_json(const std::vector<PathFacts>& paths);
// Nothing for another text.
std::optional<Introduction> introduction_of(const std::string& json);
std::optional<std::vector<PathFacts>> paths_of(const std::string& json);

}  // namespace dtrun::doctor
