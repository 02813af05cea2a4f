// What the coordinator's page answers to a request: read-only, for browsers, programs and Prometheus. Pure:
// the runs are handed in, connections and time belong to server.h.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/server/run_view.h"

namespace dtrun::rendezvous {

struct HttpRequest {
  std::string method;
  std::string target;              // path and query, as it was sent
  std::string host = {};           // these three are headers; empty: not sent
  std::string authorization = {};  // "Bearer TOKEN"
  std::string last_event_id = {};
};

// What the answers are made of.
struct Site {
  // Server::look()
  std::function<std::vector<RunView>(const std::string& run_id, const HistoryMark& mark)> look;
  // That opens the run; of no run ("") the metrics of all. Empty: none does.
  std::function<std::string(const std::string& run_id)> token;
  // The answer to Prometheus; `wall_now`: seconds since 1970.
  std::function<std::string(std::span<const v1::RunStatus> runs, double wall_now)> metrics;
  std::string version;   // of this dtrun
  std::string endpoint;  // of the coordinator, as `dtrun status` says it
};

// A stream of server-sent events on one run, as far as it got.
struct EventStream {
  std::string run_id;
  HistoryMark mark;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::optional<EventStream> stream = {};  // the body begins with next_events(), and goes on
  bool without_body = false;               // an answer to HEAD
};

// Headers of every reply.
extern const std::vector<std::pair<std::string, std::string>> kSafetyHeaders;

// `trusted`: the connection itself shows that its user may see all runs. `wall_now`: seconds since 1970.
HttpReply answer(const HttpRequest& request, bool trusted, const Site& site, double wall_now);

// The present status, and what happened since: events "status", "point" and "event" of text/event-stream.
// Empty if the run is known no more.
std::string next_events(EventStream* stream, const Site& site, double wall_now);

// "HISTORY.SERIAL" and back; what is none is the mark of a reader who has nothing.
std::string text_of(const HistoryMark& mark);
HistoryMark mark_of(const std::string& text);

// Path and parameters of a target, with % and + decoded; a parameter that comes twice counts as it came
// first.
struct Target {
  std::string path;
  std::vector<std::pair<std::string, std::string>> parameters;

  std::string parameter(const std::string& name) const;  // empty: not there
};
Target parse_target(const std::string& target);

}  // namespace dtrun::rendezvous
