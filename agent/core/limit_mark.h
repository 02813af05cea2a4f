// The agent's token as a number in a resource limit of its workers. A program can be given an environment
// without the token, but a limit is inherited by every fork and exec and changed only by setrlimit. The one
// we use, the number of file locks (RLIMIT_LOCKS), means nothing to kernels since 2.4.25. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrun::agent {

// The processes that a token (environment.h) means: one worker's, or all of an agent's.
struct LimitMark {
  std::uint64_t bits = 0;  // 0: of no process
  std::uint64_t mask = 0;  // the bits that must agree
};

// `token`: an agent's or a worker's.
LimitMark limit_mark(std::string_view token);

struct Limit {
  std::uint64_t soft = 0, hard = 0;
};

// The limit that a worker gets, from the agent's own. If the agent runs inside another job, the outermost
// agent's mark stays as the hard limit: the worker belongs to both jobs.
Limit marked_limit(const Limit& agents, const LimitMark& worker);

// True if the text of a process's /proc/PID/limits has the mark.
bool has_mark(std::string_view limits, const LimitMark& mark);

}  // namespace dtrun::agent
