#include "agent/core/supervisor/notices.h"

#include <algorithm>

#include "agent/text/report.h"
#include "proto/core/text.h"

namespace dtrun::agent {

namespace {

constexpr Millis kOld = 1000;  // of news that are shown with their age

// True if the host in "host:port" is loopback.
bool is_loopback(const std::string& endpoint) {
  return endpoint.starts_with("localhost:") || endpoint.starts_with("127.") || endpoint.starts_with("[::1]:");
}

// "missing: node1 (left 12 s ago), node2 (refused 3 s ago)"
std::string missing_text(const rendezvous::WaitStatus& waiting, Millis since) {
  std::string text;
  for (const rendezvous::News& news : waiting.missing)
    text += (text.empty() ? "missing: " : ", ") + news.host + " (" + name_of(news.kind) + " " +
            whole_seconds_text(news.age + since) + " ago)";
  return text;
}

// "1 of 2 nodes", "1 of 4 (at least 2) nodes"
std::string count_of_nodes(const rendezvous::WaitStatus& w) {
  const std::string least =
      w.min_nodes == w.max_nodes ? "" : " (at least " + std::to_string(w.min_nodes) + ")";
  return std::to_string(w.joined) + " of " + std::to_string(w.max_nodes) + least + " nodes";
}

// The rest of the wait for nodes, or the event that it waits for instead.
std::string left_text(const State& s, Millis now) {
  if (s.connection.waiting->left <= 0) return "the workers of others have to stop first";
  return whole_seconds_text(s.connection.waiting_at + s.connection.waiting->left - now) + " left";
}

std::string why_outside(const State& s, const rendezvous::WaitStatus& w) {
  if (w.away > 0)
    return counted(w.away, "node") + " of the run " + (w.away == 1 ? "is" : "are") +
           " out of touch; this node waits for a place";
  if (w.joined > w.max_nodes)
    return "all " + counted(w.max_nodes, "place") + " of the run are taken; this node waits for one";
  if (s.workers_outlive()) return "the run goes on while this node gets ready to take part";
  return "some nodes of the run have finished already; this node waits for a place";
}

std::string short_of_workers_text(const State& s, Millis now) {
  return s.connection.waiting->short_of_workers + ": waiting for workers that load, or for nodes; " +
         left_text(s, now);
}

}  // namespace

std::string waiting_notice(const State& s, Millis now) {
  const rendezvous::WaitStatus& w = *s.connection.waiting;
  const std::string only_here =
      is_loopback(s.connection.endpoint) ? " (where only agents of this machine can join)" : "";
  const std::string where =
      " at " + s.connection.endpoint + only_here + ", this node as " + s.connection.address;
  if (w.run_goes_on) return why_outside(s, w);
  if (!w.short_of_workers.empty()) return short_of_workers_text(s, now);
  const std::string missing = missing_text(w, now - s.connection.waiting_at);
  return "joined " + count_of_nodes(w) + where + "; " + (missing.empty() ? "" : missing + "; ") +
         left_text(s, now);
}

std::string unanswered_notice(const State& s, Millis now) {
  return s.connection.why_lost + "; trying for another " + whole_seconds_text(s.connection_deadline() - now);
}

std::string standing_notice(const State& s, Millis now) {
  if (s.is_ending() || s.awaited() > 0) return "";
  if (!s.connection.connected) {
    if (s.connection.why_lost.empty()) return "";
    return "waiting for the coordinator; " + whole_seconds_text(s.connection_deadline() - now) + " left";
  }
  if (!s.connection.waiting || s.connection.waiting->max_nodes == 1 || s.connection.waiting->restart_in > 0)
    return "";
  if (s.connection.waiting->run_goes_on) return why_outside(s, *s.connection.waiting);
  if (!s.connection.waiting->short_of_workers.empty()) return short_of_workers_text(s, now);
  const std::string missing = missing_text(*s.connection.waiting, now - s.connection.waiting_at);
  return "waiting: joined " + count_of_nodes(*s.connection.waiting) + "; " + left_text(s, now) +
         (missing.empty() ? "" : "; " + missing);
}

std::string parted_notice(const State& s) {
  return "others may go on without this node: " +
         std::string(s.workers_outlive() ? "its workers wait with their state" : "its workers are stopped");
}

std::string lost_notice(const State& s, Millis now) {
  std::string text = s.connection.why_lost;
  if (s.generation.parted) {
    text += "; " + parted_notice(s);
  } else if (s.workers.running() > 0) {
    text += "; workers keep running";
  } else if (s.succeeded()) {
    text += "; the workers of this node are done, those of others may still need it";
  }
  const Millis left = s.connection_deadline() - now;
  return text + (left > 0 ? ", trying again for " + whole_seconds_text(left) : "");
}

std::string never_met_notice(const State& s) {
  const std::string why = s.connection.why_lost.empty()
                              ? "nothing answers at the rendezvous endpoint " + s.connection.endpoint
                              : s.connection.why_lost;
  return why + "; gave up after " + whole_seconds_text(s.settings.join_timeout);
}

std::string gone_notice(const State& s, Millis now) {
  const std::string gone = s.connection.endpoint + " was out of reach for " +
                           whole_seconds_text(now - s.connection.lost_at) + ": ";
  const std::string done =
      s.succeeded() ? ". The workers of this node ended with 0; how the others ended is not known here" : "";
  if (s.settings.elastic && s.connection.gone_at && !s.settings.is_replaced && !s.connection.separate)
    return "the coordinator at " + s.connection.endpoint +
           " is gone: nothing listens there any more. Either the job has ended, as its terminal says, or "
           "start it "
           "again on all nodes" +
           done;
  if (s.settings.has_successor)
    return "the coordinator at " + gone +
           "of its hosts too few are up, or the network to them is cut (perhaps this node's own)" + done;
  if (s.settings.is_replaced)
    return "the coordinator at " + gone +
           "its agent or node is down and no other came in its place, or the " +
           "network between is cut (perhaps this node's own)" + done;
  if (s.connection.separate)
    return "the store at " + gone + "start it again, and the job on all nodes" + done;
  if (s.settings.elastic)
    return "the coordinator at " + gone +
           "its node is down, or the network between (perhaps this node's own). " +
           "The others may go on without this node: started again, it takes part again" + done;
  return "the coordinator at " + gone + "its agent or node is down, or the network between (perhaps " +
         "this node's own). Start the job again on the nodes that are left, or give the coordinator a host "
         "of its own with `dtrun store`" +
         done;
}

std::string stopping_notice(const State& s, Millis now) {
  const Millis left = s.generation.kill_at ? *s.generation.kill_at - now : 0;
  return s.generation.why_stopping + "; " + counted(s.awaited(), "worker") + " to end yet" +
         (left > 0 ? ", killed in " + whole_seconds_text(left) : "");
}

std::string signal_notice(const State& s, Millis now) {
  const Millis grace = s.generation.kill_at ? *s.generation.kill_at - now : s.settings.shutdown_timeout;
  return "stopping " + counted(s.workers.running(), "worker") + " after " +
         describe_signal(s.ending.told_signal) + " (at most " + whole_seconds_text(grace) +
         (s.told_by_scheduler() ? "; the job may be started again)" : "; a second signal stops at once)");
}

std::string regrouped_notice(const State& s, const Assignment& to) {
  const std::string why = to.reason == s.connection.told_news ? "" : to.reason + "; ";
  return why + "going on with " + counted(to.world_size, "worker") + " on " + counted(to.node_count, "node");
}

std::string begin_again_notice(const State& s, std::int64_t step) {
  const std::string of = " the state of step " + std::to_string(step) + " any more; ";
  return s.generation.assignment.node_count == 1
             ? "no worker has" + of + "all begin again from what the script loads"
             : "no worker on this node has" + of +
                   "they begin from that of others, or from what the script loads";
}

std::string again_notice(const State& s, const Assignment& to) {
  const int first = s.generation.assignment.node.first_rank, count = s.settings.nproc;
  const std::string had = " had ended with 0 and run" + std::string(count == 1 ? "s" : "") + " again: ";
  return (count == 1 ? "rank " + std::to_string(first)
                     : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1)) +
         had + to.reason;
}

std::string news_notice(const State& s, const rendezvous::News& news) {
  if (news.age >= kOld) return news.text + ", " + whole_seconds_text(news.age) + " ago";
  if (!s.generation.stopping || s.generation.why_stopping != news.text) return news.text;
  // The order to stop came just before, and quick workers have ended by now.
  const bool pauses = s.workers_outlive();
  const int awaited = s.awaited();
  return news.text + (awaited > 0
                          ? (pauses ? ": pausing " : ": stopping ") + counted(awaited, "worker")
                          : (pauses ? ": paused " : ": stopped ") + counted(s.settings.nproc, "worker"));
}

}  // namespace dtrun::agent
