#include "tests/rendezvous/core/run/text.h"

#include "proto/core/exit_codes.h"

namespace dtrun::rendezvous {
namespace {

std::string str(std::int64_t number) { return std::to_string(number); }

std::string text_of(const WorkerOutcome& outcome) {
  return "rank " + str(outcome.rank) + " " + describe_exit(outcome.exit_code, outcome.signal) +
         (outcome.collateral ? " collateral" : "") + (outcome.retryable ? "" : " final");
}

struct EventText {
  std::string operator()(const Join& join) const {
    std::string text = "joins as " + join.member_id + " host=" + join.host + " nproc=" + str(join.nproc) +
                       " nnodes=" + str(join.min_nodes) + ":" + str(join.max_nodes) +
                       " restarts=" + str(join.max_restarts);
    if (join.node_rank >= 0) text += " node_rank=" + str(join.node_rank);
    if (join.group_rank >= 0) text += " had=" + str(join.group_rank);
    if (join.node_count > 0) text += " of=" + str(join.node_count);
    if (join.in_memory_recovery) text += " warms";
    if (join.least_workers > 1) text += " least=" + str(join.least_workers);
    return text;
  }
  std::string operator()(const Heartbeat& beat) const {
    return "beats" + (beat.progress ? " at step " + str(beat.progress->step) : "");
  }
  std::string operator()(const Failure& failure) const { return "failed: " + text_of(failure.outcome); }
  std::string operator()(const Stopped& stopped) const {
    std::string text = "stopped";
    for (const WorkerOutcome& outcome : stopped.outcomes) text += ", " + text_of(outcome);
    return text + (stopped.workers ? ", kept " + str(*stopped.workers) : "") +
           (stopped.parted ? ", parted" : "");
  }
  std::string operator()(const Ready&) const { return "ready"; }
  std::string operator()(const Finished&) const { return "finished"; }
  std::string operator()(const Leave& leave) const {
    return (leave.soon ? "will leave, signal " : "leaves, signal ") + str(leave.signal) +
           (leave.replaced ? ", replaced" : "");
  }
  std::string operator()(const StreamBroken&) const { return "breaks"; }
  std::string operator()(const Tick&) const { return "tick"; }
};

std::string missing_of(const WaitStatus& waiting) {
  static constexpr const char* kKinds[] = {"note", "left", "lost", "refused", "back"};
  std::string text;
  for (const News& news : waiting.missing)
    text += (text.empty() ? ", missing " : ", ") + news.host + " (" + kKinds[news.kind] + ")";
  if (waiting.away > 0) text += ", " + str(waiting.away) + " away";
  return text;
}

struct ActionText {
  std::string operator()(const JoinAck& join_ack) const {
    return "join_ack " + join_ack.address + ", beat every " + str(join_ack.heartbeat_interval) +
           (join_ack.resumed ? ", resumed" : "");
  }
  std::string operator()(const Rejected& rejected) const {
    static constexpr const char* kNames[] = {"UNSPECIFIED",    "OTHER_RUN",       "OTHER_JOB",
                                             "OTHER_SETTINGS", "NODE_RANK_TAKEN", "JOB_OVER"};
    return std::string("rejected ") + kNames[rejected.reason] + ": " + rejected.message +
           (rejected.job.empty() ? "" : " {" + rejected.job + "}");
  }
  std::string operator()(const WaitStatus& waiting) const {
    return "waiting, " + str(waiting.joined) + " joined of " + str(waiting.min_nodes) + ":" +
           str(waiting.max_nodes) + (waiting.run_goes_on ? ", the run goes on" : "") +
           (waiting.restart_in > 0 ? ", restart in " + str(waiting.restart_in) + " after " + waiting.reason
                                   : "") +
           missing_of(waiting) + (waiting.outlives ? ", workers outlive" : "") +
           (waiting.short_of_workers.empty() ? "" : ": " + waiting.short_of_workers);
  }
  std::string operator()(const News& news) const {
    return "news: " + news.text + (news.age > 0 ? " (" + str(news.age) + " ago)" : "");
  }
  std::string operator()(const Assigned& assignment) const {
    const Membership& membership = *assignment.membership;
    std::string nodes;
    for (const Node& node : membership.nodes)
      nodes += (nodes.empty() ? "" : " ") + node.host + ":" + str(node.first_rank) + "+" + str(node.nproc);
    return "assigned generation " + str(membership.generation) + ", group rank " +
           str(assignment.group_rank) + ", world " + str(membership.world_size) + " [" + nodes +
           "], master " + membership.master_address + ":" + str(membership.master_port) + ", restarts " +
           str(membership.restart_count) +
           (membership.membership_changes > 0 ? ", changes " + str(membership.membership_changes) : "") +
           ", because " + membership.reason;
  }
  std::string operator()(const StopOrder& stop) const { return "stop: " + stop.reason; }
  std::string operator()(const Verdict& verdict) const { return "verdict: " + verdict.text; }
  std::string operator()(const Ended& end) const {
    std::string text = "job ends with " + str(end.result->exit_code) + ": " + end.result->reason;
    if (end.result->first_failure) text += "; first " + text_of(*end.result->first_failure);
    for (const WorkerOutcome& follower : end.result->followers) text += "; then " + text_of(follower);
    return text + "; restarts " + str(end.result->restart_count);
  }
  std::string operator()(const Close& close) const { return close.abort ? "aborted" : "closed"; }
};

}  // namespace

std::string text_of(const Event& event) {
  const std::string text = std::visit(EventText{}, event.body);
  return event.generation == 0 ? text : text + " (generation " + str(event.generation) + ")";
}

std::string text_of(const Action& action) { return std::visit(ActionText{}, action.body); }

}  // namespace dtrun::rendezvous
