#include "agent/report_file.h"

#include <cmath>
#include <cstdlib>
#include <ctime>

#include "agent/text/line_prefix.h"
#include "agent/text/report.h"
#include "proto/json/json.h"
#include "rendezvous/text/goodput_json.h"
#include "rendezvous/text/verdict_json.h"

namespace dtrun::agent {
namespace {

// RFC 3339 with milliseconds, UTC; null for 0.
Json time_of(double seconds) {
  if (seconds <= 0) return nullptr;
  const auto whole = static_cast<std::int64_t>(seconds);
  return timestamp(1000 * whole + static_cast<int>((seconds - std::floor(seconds)) * 1000));
}

Json cause_of(const WorkerOutcome& worker) {
  switch (worker.cause) {
    case EndCause::kOutOfMemory:
      return "out_of_memory";
    case EndCause::kHung:
      return "hung";
    case EndCause::kUnknown:
      break;
  }
  return nullptr;
}

Json ranks_of(const std::vector<RankRange>& ranges) {
  Json ranks = Json::array();
  for (const RankRange& range : ranges)
    for (int rank = range.first; rank <= range.last; ++rank) ranks.push_back(rank);
  return ranks;
}

Json to_json(const Hang& hang) {
  Json json;
  json["ranks"] = ranks_of(hang.ranks);
  json["what"] = hang.what;
  json["places"] = Json::array();
  for (const LocationGroup& place : hang.places)
    json["places"].push_back({{"ranks", ranks_of(place.ranks)}, {"where", place.where}});
  json["suspects"] = ranks_of(hang.suspects);
  json["verdict"] = hang.verdict;
  return json;
}

Json to_json(const WorkerOutcome& worker) {
  Json json;
  json["rank"] = worker.rank;
  json["local_rank"] = worker.local_rank;
  json["group_rank"] = worker.group_rank;
  json["host"] = worker.host;
  json["pid"] = worker.pid > 0 ? Json(worker.pid) : Json(nullptr);  // null: it never ran
  json["exit_code"] = worker.signal == 0 ? Json(worker.exit_code) : Json(nullptr);
  json["signal"] = worker.signal != 0 ? Json(worker.signal) : Json(nullptr);
  json["signal_name"] = worker.signal != 0 ? Json(describe_signal(worker.signal)) : Json(nullptr);
  json["cause"] = cause_of(worker);
  json["where"] = worker.where.empty() ? Json(nullptr) : Json(worker.where);
  json["gpu"] = worker.gpu.empty() ? Json(nullptr) : Json(worker.gpu);
  json["ended_at"] = time_of(worker.ended_at);
  json["uptime_seconds"] = worker.uptime_s;
  json["collateral"] = worker.collateral;
  json["retryable"] = worker.retryable;
  json["error"] = worker.error;
  json["traceback"] = worker.traceback;
  json["stderr_tail"] = worker.stderr_tail;
  return json;
}

// What `time_of` wrote; 0 for anything else.
double seconds_of(const std::string& time) {
  std::tm utc{};
  const char* rest = strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (rest == nullptr) return 0;
  return static_cast<double>(timegm(&utc)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

// Throws Json::exception.
EndedJob to_ended_job(const Json& json) {
  const Json& restarts = json.at("restarts");
  const Json& goodput = json.at("goodput");
  const Json nodes = json.value("nodes", Json::object());
  const Json verdict = json.value("verdict", Json(nullptr));
  return {
      .job = {.run_id = json.at("run_id")},
      .ended_at = seconds_of(json.at("written_at")),
      .end = {.exit_code = json.at("exit_code"),
              .reason = json.at("reason"),
              .restart_count = restarts.at("used"),
              .membership_changes = json.value("membership_changes", 0),
              .goodput = goodput.is_null() ? Goodput() : rendezvous::goodput_of(goodput),
              .verdict = verdict.is_null() ? std::nullopt : std::optional(rendezvous::verdict_of(verdict))},
      .generation = json.value("generation", std::int64_t{0}),
      .world_size = json.value("world_size", 0),
      .min_nodes = nodes.value("min", 0),
      .max_nodes = nodes.value("max", 0),
      .max_restarts = restarts.at("allowed")};
}

}  // namespace

std::string report_json(const EndedJob& ended, const std::string& host) {
  const JobEnd& end = ended.end;
  Json json;
  json["format"] = 1;
  json["run_id"] = ended.job.run_id;
  json["exit_code"] = end.exit_code;
  json["reason"] = end.reason;
  json["restarts"] = {{"used", end.restart_count}, {"allowed", ended.max_restarts}};
  json["membership_changes"] = end.membership_changes;
  json["generation"] = ended.generation;
  json["world_size"] = ended.world_size;
  json["nodes"] = {{"min", ended.min_nodes}, {"max", ended.max_nodes}};
  json["goodput"] = end.goodput.total() > 0 ? rendezvous::goodput_json(end.goodput) : Json(nullptr);
  json["first_failure"] = end.first_failure ? to_json(*end.first_failure) : Json(nullptr);
  json["hang"] = end.hang ? to_json(*end.hang) : Json(nullptr);
  json["verdict"] = end.verdict ? rendezvous::verdict_json(*end.verdict) : Json(nullptr);
  json["followers"] = Json::array();
  for (const WorkerOutcome& follower : end.followers) json["followers"].push_back(to_json(follower));
  json["written_at"] = time_of(ended.ended_at);
  json["written_by"] = host;
  return json_text(json, 2) + "\n";
}

std::optional<EndedJob> ended_job_of(const std::string& text) {
  try {
    return to_ended_job(parse_json(text));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dtrun::agent
