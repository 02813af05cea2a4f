// --include and --exclude, in DeepSpeed's grammar: "h1@h2:0,2" is host h1 and GPUs 0 and 2 of h2. Pure.
#pragma once

#include <string>
#include <vector>

#include "cmd/hosts/host.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The hosts that are left, in the order of `hosts`; at most one of the two texts may be non-empty. Hosts are
// named without their user, since '@' stands between them; an IPv6 address in brackets. If GPUs are named,
// `gpus` lists those that are left, and `slots` is their number; a host without any left is dropped. Failures
// have EX_USAGE: a host or GPU that does not exist, GPUs excluded from a host without slots, nothing left.
Result<std::vector<Host>> filter_hosts(std::vector<Host> hosts, const std::string& include,
                                       const std::string& exclude);

}  // namespace dtrun::cmd
