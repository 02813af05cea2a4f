#include "agent/core/notices.h"

#include <algorithm>

#include "agent/core/report.h"

namespace dtrun::agent {

namespace {

constexpr Millis kOld = 1000;  // of news that are told with their age

// Of "host:port".
bool is_loopback(const std::string& endpoint) {
  return endpoint.starts_with("localhost:") || endpoint.starts_with("127.") || endpoint.starts_with("[::1]:");
}

}  // namespace

std::string seconds_text(Millis duration) {
  return std::to_string(std::max<Millis>(0, (duration + 999) / 1000)) + " s";
}

std::string count_text(int n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

namespace {

// "missing: node1 (left 12 s ago), node2 (refused 3 s ago); "
std::string missing_text(const rendezvous::Waiting& waiting, Millis since) {
  std::string text;
  for (const rendezvous::News& news : waiting.missing)
    text += (text.empty() ? "missing: " : ", ") + news.host + " (" + name_of(news.kind) + " " +
            seconds_text(news.age + since) + " ago)";
  return text.empty() ? text : text + "; ";
}

}  // namespace

std::string waiting_notice(const State& s, Millis now) {
  const rendezvous::Waiting& w = *s.waiting;
  const std::string only_here =
      is_loopback(s.settings.endpoint) ? " (where only agents of this machine can join)" : "";
  const std::string where = " at " + s.settings.endpoint + only_here + ", this node as " + s.link.address;
  if (w.spare)
    return "the run is complete with " + count_text(w.max_nodes, "node") + where + "; waiting as a spare";
  const std::string wanted = w.min_nodes == w.max_nodes ? std::to_string(w.max_nodes)
                                                        : std::to_string(w.max_nodes) + " (at least " +
                                                              std::to_string(w.min_nodes) + ")";
  return "joined " + std::to_string(w.joined) + " of " + wanted + " nodes" + where + "; " +
         missing_text(w, now - s.waiting_at) + seconds_text(s.waiting_at + w.left - now) + " left";
}

std::string lost_notice(const State& s, Millis now) {
  std::string text = s.link.why_lost;
  if (s.group.running() > 0) {
    text += "; workers keep running";
  } else if (s.succeeded()) {
    text += "; the workers of this node are done, those of others may still need it";
  }
  const Millis left = s.link_deadline() - now;
  return text + (left > 0 ? ", trying again for " + seconds_text(left) : "");
}

std::string never_met_notice(const State& s) {
  const std::string why = s.link.why_lost.empty()
                              ? "nothing answers at the rendezvous endpoint " + s.settings.endpoint
                              : s.link.why_lost;
  return why + "; gave up after " + seconds_text(s.settings.join_timeout);
}

std::string gone_notice(const State& s, Millis now) {
  const std::string gone = s.settings.endpoint + " is gone for " + seconds_text(now - s.link.lost_at) + ": ";
  const std::string done =
      s.succeeded() ? ". The workers of this node ended with 0; how the others ended is not known here" : "";
  if (s.link.separate) return "the store at " + gone + "start it again, and the job on all nodes" + done;
  return "the coordinator at " + gone + "the node that hosts it is lost. Start the job again on the " +
         "nodes that are left, or give the coordinator a host of its own with `dtrun store`" + done;
}

std::string stopping_notice(const State& s, Millis now) {
  const Millis left = s.group.kill_at ? *s.group.kill_at - now : 0;
  return s.group.why_stopping + "; " + count_text(s.group.running(), "worker") + " to end yet" +
         (left > 0 ? ", killed in " + seconds_text(left) : "");
}

std::string signal_notice(const State& s, Millis now) {
  const Millis grace = s.group.kill_at ? *s.group.kill_at - now : s.settings.shutdown_timeout;
  return "stopping " + count_text(s.group.running(), "worker") + " after " + describe_signal(s.told_signal) +
         " (at most " + seconds_text(grace) + "; a second signal stops at once)";
}

std::string regrouped_notice(const State& s, const Assignment& to) {
  const std::string why = to.reason == s.told_news ? "" : to.reason + "; ";
  return why + "going on with " + count_text(to.world_size, "worker") + " on " +
         count_text(to.node_count, "node");
}

std::string news_notice(const State& s, const rendezvous::News& news) {
  if (news.age >= kOld) return news.text + ", " + seconds_text(news.age) + " ago";
  const bool stops = s.group.running() > 0 && s.group.why_stopping == news.text;
  return news.text + (stops ? ": stopping " + count_text(s.group.running(), "worker") : "");
}

}  // namespace dtrun::agent
