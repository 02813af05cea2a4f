#include "cmd/commands/machine_in_its_place.h"

#include <unistd.h>

#include <string>

#include "agent/local_address.h"
#include "proto/base/ids.h"
#include "proto/base/text_in.h"

namespace dtrun::cmd {
namespace {

ClusterEnvironment cluster() {
  ClusterEnvironment cluster{.hostname = host_name(), .file = text_in};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      cluster.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return cluster;
}

}  // namespace

Machine machine_in_its_place() {
  Machine machine = this_machine();
  machine.is_home = [](const std::string& host) { return agent::home_of(host).listen_address.has_value(); };
  machine.own_addresses = agent::addresses_for;
  machine.cluster = cluster();
  return machine;
}

}  // namespace dtrun::cmd
