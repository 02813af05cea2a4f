#include "agent/report_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/text/line_prefix.h"
#include "agent/text/report.h"
#include "proto/base/ids.h"
#include "proto/core/exit_codes.h"
#include "rendezvous/text/goodput_json.h"

namespace dtrun::agent {
namespace {

using Json = nlohmann::ordered_json;

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
  for (const Place& place : hang.places)
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

}  // namespace

std::string report_json(const JobEnd& end, const ReportContext& context) {
  Json json;
  json["format"] = 1;
  json["run_id"] = context.run_id;
  json["exit_code"] = end.exit_code;
  json["reason"] = end.reason;
  json["restarts"] = {{"used", end.restart_count}, {"allowed", context.max_restarts}};
  json["goodput"] = end.goodput.total() > 0 ? rendezvous::goodput_json(end.goodput) : Json(nullptr);
  json["first_failure"] = end.first_failure ? to_json(*end.first_failure) : Json(nullptr);
  json["hang"] = end.hang ? to_json(*end.hang) : Json(nullptr);
  json["followers"] = Json::array();
  for (const WorkerOutcome& follower : end.followers) json["followers"].push_back(to_json(follower));
  json["written_at"] = time_of(context.written_at);
  json["written_by"] = context.host;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_report(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path fresh = file.string() + "." + random_id();
  std::ofstream out(fresh, std::ios::binary);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(fresh, file, error);
  if (out && !error) return {};
  const int number = error ? error.value() : errno;
  std::filesystem::remove(fresh, error);
  return errno_status(kExitSoftware, "cannot write " + file.string(), number);
}

}  // namespace dtrun::agent
