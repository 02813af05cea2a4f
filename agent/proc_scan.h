// Finds and ends processes that belong to an agent's job by the token in their environment, whatever became
// of their parents, groups and sessions. Never touches a process without the token.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace dtrun::agent {

// Live processes whose environment has kEnvAgentToken with `token` in its value.
std::vector<pid_t> find_by_token(const std::string& token);

// Sends SIGKILL to each of them; returns how many there were. A process that forks meanwhile may need another
// call: repeat until it returns 0.
int kill_by_token(const std::string& token);

// Whether this process has a child that is not in `known`; true as well where the kernel does not tell.
bool has_other_children(const std::vector<pid_t>& known);

// Sends SIGKILL to every child that is not in `known`, to the children that come to us by that, and so on,
// and reaps them; gives up after `limit`. Does nothing where the kernel does not tell children.
void kill_other_children(const std::vector<pid_t>& known, std::chrono::milliseconds limit);

}  // namespace dtrun::agent
