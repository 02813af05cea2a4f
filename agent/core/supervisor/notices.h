// The agent's notices to people while a job runs or waits. Pure; agent/core/supervisor/decide.h decides when.
// agent/text/report.h has the texts on how a job ended.
#pragma once

#include <string>

#include "agent/core/supervisor/state.h"

namespace dtrun::agent {

// "joined 1 of 2 nodes at 10.0.0.1:29400, this node as 10.0.0.2; 590 s left". REQUIRES:
// state.connection.waiting
std::string waiting_notice(const State& state, Millis now);

// No coordinator was met yet: why, and how long the agent goes on trying.
std::string unanswered_notice(const State& state, Millis now);

// The thing that this node waits for, in short, for a terminal's last line and for later lines of a log:
// "waiting: joined 1 of 2 nodes; 588 s left; missing: node1 (left 12 s ago)". Empty if it waits for nothing,
// or runs.
std::string standing_notice(const State& state, Millis now);

// The connection was lost a moment ago: why, what happens to the workers, and how long the agent goes on
// trying to connect.
std::string lost_notice(const State& state, Millis now);
// That is told, and now the workers leave their generation.
std::string parted_notice(const State& state);

// No coordinator answered at the endpoint in time.
std::string never_met_notice(const State& state);

// A lost coordinator did not come back in time: what that means, and the way out. Why the connection failed
// was printed when it was lost.
std::string gone_notice(const State& state, Millis now);

// Why workers are being stopped, how many still run, and when they are killed.
std::string stopping_notice(const State& state, Millis now);

// A signal ends the job. REQUIRES: state.ending.told_signal
std::string signal_notice(const State& state, Millis now);

// A generation begins because nodes changed, not because of a failure.
std::string regrouped_notice(const State& state, const Assignment& to);

// No worker of this node has a program's state any more, of which so many steps were done.
std::string begin_again_notice(const State& state, std::int64_t step);

// Work of this node that ended well is done again, and why.
std::string again_notice(const State& state, const Assignment& to);

// The event on another node, how long ago it was, and its effect on the workers of this one.
std::string news_notice(const State& state, const rendezvous::News& news);

}  // namespace dtrun::agent
