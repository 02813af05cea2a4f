// The metadata of a saved model, from which its network can be built again.
#include <map>
#include <string>

#include "worker/model/program.h"

namespace dtrun::worker {
namespace {

// Empty if the program is more than a chain of modules.
std::string layers_of(const Program& program) {
  std::string layers;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    const std::string words = torch_module(program, node.op);
    if (words.empty() || node.in[0] != static_cast<Value>(n)) return "";
    layers += (layers.empty() ? "" : " -> ") + words;
  }
  return layers;
}

}  // namespace

std::map<std::string, std::string> description(const Program& program) {
  std::map<std::string, std::string> about{{"format", "pt"},
                                           {"model", program.model},
                                           {"input_shape", shape_text(program.sample.shape)},
                                           {"input_values", program.input_values}};
  if (const std::string layers = layers_of(program); !layers.empty()) about["layers"] = layers;
  if (!program.layers.empty()) about["modules"] = program.layers;
  if (!program.hub_config.empty()) about["config"] = program.hub_config;
  return about;
}

}  // namespace dtrun::worker
