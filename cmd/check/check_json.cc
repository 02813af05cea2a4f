#include "cmd/check/check_json.h"

#include "proto/json/fields.h"

namespace dtrun::cmd {

DTRUN_JSON(NodeFacts, dtrun, config, processor, refusal, worker_path, worker, worker_wanted, host, means,
           name_problem, own, has_peers, endpoint, listener, address, route_problem, interface, mtu,
           files_problem, files, files_wanted, shm_size, shares_memory, cpus, quota, quota_by, workers, lanes,
           output_dir, free, checkpoint, reads_stacks, gpus, gpu_problem, driver, gpu_use)
DTRUN_JSON(PathFacts, failure, large_fails, round_trip, rate, rate_of_cpu, wrong_name)
DTRUN_JSON(Introduction, facts, port, nonce)
NLOHMANN_JSON_SERIALIZE_ENUM(Grade, {{Grade::kPassed, "passed"},
                                     {Grade::kWarning, "warning"},
                                     {Grade::kFailed, "failed"}})
DTRUN_JSON(Finding, check, grade, nodes, text, remedy)
DTRUN_JSON(ReportSection, title, note, findings)
DTRUN_JSON(Report, sections, missing)

std::string to_json(const Introduction& introduction) { return json_text(introduction); }
std::string to_json(const std::vector<PathFacts>& paths) { return json_text(paths); }
std::string report_json(const Report& report, bool strict) {
  Json json = report;
  json["exit_code"] = exit_code_of(report, strict);
  return json_text(json);
}

std::optional<Introduction> introduction_of(const std::string& json) { return parsed<Introduction>(json); }
std::optional<std::vector<PathFacts>> paths_of(const std::string& json) {
  return parsed<std::vector<PathFacts>>(json);
}
std::optional<Report> report_of(const std::string& json) { return parsed<Report>(json); }

}  // namespace dtrun::cmd
