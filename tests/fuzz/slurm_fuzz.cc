// Any bytes as a list of nodes, as counts, and as the environment and files of a cluster: a refusal in one
// line, or nodes within the limits and a place that fits together.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cmd/cluster/node_list.h"
#include "cmd/cluster/place.h"
#include "proto/core/contract.h"

using namespace dtrun::cmd;

namespace {

void check_line(const std::string& line) {
  if (line.empty() || line.size() > 1000) std::abort();
  if (std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) < ' '; })) std::abort();
}

void check_refusal(const dtrun::Status& status) {
  if (status.exit_code() != dtrun::kExitUsage) std::abort();
  check_line(status.message());
}

void check_lists(const std::string& text) {
  const auto nodes = parse_node_list(text);
  if (!nodes.ok()) check_refusal(nodes.status());
  if (nodes.ok() && (nodes.value().empty() || nodes.value().size() > dtrun::kMaxNodes)) std::abort();
  const auto counts = parse_counts(text);
  if (!counts.ok()) check_refusal(counts.status());
}

void check_place(const Place& place) {
  if (place.job.empty() || place.rank < 0 || place.local_rank < 0 || place.tasks < 1) std::abort();
  if (place.local_rank >= place.tasks || (place.agents && place.rank >= *place.agents)) std::abort();
  if (place.cpus && *place.cpus < 1) std::abort();
  for (const int port : place.ports)
    if (port < 1024 || port > 65535) std::abort();
  check_line(place_line(place, place.agents.value_or(2), "x:1"));
}

}  // namespace

// Lines "NAME=value" are the environment; what has no '=' is a line of a file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_lists(text);
  ClusterEnvironment cluster{.hostname = text.substr(0, text.find_first_of(" \n=")),
                             .file = [&](const std::string&) { return text; }};
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const auto equals = line.find('=');
    if (equals != line.npos) cluster.variables[line.substr(0, equals)] = line.substr(equals + 1);
    begin = end + 1;
  }
  for (const bool nodes : {false, true}) {
    const auto place = find_place(cluster, {.nodes = nodes});
    if (!place.ok()) check_refusal(place.status());
    if (place.ok() && place.value()) check_place(*place.value());
  }
  return 0;
}
