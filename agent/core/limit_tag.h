// The agent's tag as a number in a resource limit of its workers. A program can be given an environment
// without the tag, but a limit is inherited by every fork and exec and changed only by setrlimit. The one
// we use, the number of file locks (RLIMIT_LOCKS), means nothing to kernels since 2.4.25. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::agent {

// The processes that a tag (environment.h) means: one worker's, or all of an agent's.
struct LimitTag {
  std::uint64_t bits = 0;  // 0: of no process
  std::uint64_t mask = 0;  // the bits that must agree
};

// `tag`: an agent's or a worker's.
LimitTag limit_tag(std::string_view tag);

struct Limit {
  std::uint64_t soft = 0, hard = 0;
};

// The limit that a worker gets, from the agent's own. If the agent runs inside another job, the outermost
// agent's tag stays as the hard limit: the worker belongs to both jobs.
Limit tagged_limit(const Limit& agents, const LimitTag& worker);

// True if the text of a process's /proc/PID/limits has the tag.
bool has_tag(std::string_view limits, const LimitTag& limit_tag);

}  // namespace dtrun::agent
