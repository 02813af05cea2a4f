#include "rendezvous/text/status_text.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "proto/core/text.h"
#include "proto/core/utf8.h"
#include "proto/json/fields.h"
#include "proto/wire/training.h"
#include "rendezvous/core/rank_set.h"
#include "rendezvous/text/goodput_json.h"
#include "rendezvous/text/names.h"
#include "rendezvous/text/verdict_json.h"
#include "rendezvous/text/worker_lines.h"
#include "rendezvous/wire/convert.h"

namespace dtrun {

DTRUN_JSON_KNOWN(StepTimes, steps, math, data, wait_peers, other, microbatches, wait_for, sent, received)

namespace rendezvous {

DTRUN_JSON_KNOWN(FailureCounts, exit, signal, out_of_memory, hung, node_lost)
DTRUN_JSON_KNOWN(GpuUse, number, utilization, memory_used, memory_total, temperature, power, throttled)
DTRUN_JSON_KNOWN(WorkerUsage, cpu, cpu_wait, major_faults, read_bytes, written_bytes, resident_bytes,
                 output_age, last_line)

namespace {

using v1::MemberStatus;
using v1::RunStatus;
// Version of the JSON (docs/status.md): raised once a key or value means something else, not for new ones.
constexpr int kJsonVersion = 1;

constexpr const char* kPhases[] = {"waiting for nodes", "running", "stopping", "over"};
constexpr const char* kStates[] = {"waiting", "running", "finished", "stopped", "out of touch", "lost"};

template <std::size_t N>
const char* name(const char* const (&names)[N], int value) {
  return value >= 0 && value < static_cast<int>(N) ? names[value] : "unknown";
}

// "42 s", "3 min 12 s", "5 h 3 min"
std::string age(double seconds) {
  const auto total = static_cast<long>(std::max(0.0, seconds));
  if (total < 60) return std::to_string(total) + " s";
  if (total < 3600) return std::to_string(total / 60) + " min " + std::to_string(total % 60) + " s";
  return std::to_string(total / 3600) + " h " + std::to_string(total / 60 % 60) + " min";
}

std::string heading(const RunStatus& run, const std::string& endpoint, const Palette& palette) {
  std::string text = "run " + run.run_id() + " at " + endpoint + ": ";
  if (run.phase() == RunStatus::OVER) {
    const std::string end = "over, exit code " + std::to_string(run.exit_code());
    return text + (run.exit_code() == 0 ? end : palette.error(end)) + ", " + age(run.ended_age_s()) +
           " ago\n";
  }
  text += name(kPhases, run.phase());
  if (run.phase() == RunStatus::GATHERING && run.restart_in_s() > 0)
    text += ", restart in " + decimals(run.restart_in_s(), 1) + " s";
  if (run.join_timeout_left_s() > 0) text += ", " + age(run.join_timeout_left_s()) + " left";
  if (run.generation() > 0)
    text += ", generation " + std::to_string(run.generation()) + " for " + age(run.generation_age_s());
  return text + "\n";
}

std::string counts(const RunStatus& run) {
  const std::string nodes = run.min_nodes() == run.max_nodes()
                                ? std::to_string(run.max_nodes())
                                : std::to_string(run.min_nodes()) + " to " + std::to_string(run.max_nodes());
  return "  world size " + std::to_string(run.world_size()) + ", nodes wanted " + nodes + ", restarts " +
         std::to_string(run.restart_count()) + " of " + std::to_string(run.max_restarts()) +
         ", membership changes " + std::to_string(run.membership_changes()) + "\n";
}

std::string goodput_line(const RunStatus& run) {
  const Goodput spent = from_wire(run.goodput());
  return spent.training > 0 ? "  " + goodput_text(spent) + "\n" : "";
}

std::string progress_line(const Progress& progress) {
  std::string text = "  step " + std::to_string(progress.step) + " of " +
                     std::to_string(progress.total_steps) + ", epoch " + decimals(progress.epoch, 2);
  if (progress.loss) text += ", loss " + decimals(*progress.loss, 4);
  if (progress.samples_per_second > 0) text += ", " + decimals(progress.samples_per_second, 0) + " samples/s";
  if (progress.memory)
    text +=
        ", GPU memory " + in_gibibytes(progress.memory->used) + " of " + in_gibibytes(progress.memory->total);
  return text + "\n";
}

constexpr std::size_t kColumns = 79;  // of a line, as far as a table can be made to fit

// All but the pids, which stand in the last column.
std::vector<std::string> row_of(const MemberStatus& member) {
  const bool seated = member.group_rank() >= 0;
  const int last = member.first_rank() + member.nproc() - 1;
  std::string ranks = "-";
  if (seated && member.nproc() > 0)
    ranks = std::to_string(member.first_rank()) + (member.nproc() > 1 ? "-" + std::to_string(last) : "");
  const bool heard = member.heartbeat_age_s() >= 0;
  return {seated ? std::to_string(member.group_rank()) : "-",
          member.host(),
          ranks,
          name(kStates, member.state()),
          heard ? decimals(member.heartbeat_age_s(), 1) + " s ago" : "-",
          ""};
}

// Several lines, each but the first after `indent` blanks.
std::string pids_of(const MemberStatus& member, std::size_t indent) {
  if (member.pids().empty()) return "-";
  std::string text;
  std::size_t column = indent;
  for (int pid : member.pids()) {
    const std::string word = pid > 0 ? std::to_string(pid) : "-";
    const bool first = text.empty(), fits = column + 1 + word.size() <= kColumns;
    if (!first) text += fits ? " " : "\n" + std::string(indent, ' ');
    column = (first || !fits ? indent : column + 1) + word.size();
    text += word;
  }
  return text;
}

std::string table(const RunStatus& run) {
  std::vector<std::vector<std::string>> rows{{"node", "host", "ranks", "state", "heartbeat", "pids"}};
  for (const MemberStatus& member : run.members()) rows.push_back(row_of(member));
  const std::vector<std::string> lines = in_columns(rows);
  std::string text = "  " + lines[0] + "\n";
  for (int i = 0; i < run.members_size(); ++i) {
    const std::string line = "  " + lines[static_cast<std::size_t>(i) + 1];
    text += line + pids_of(run.members(i), line.size()) + "\n";
  }
  return text;
}

// The workers' GPUs, a line for each node that has some.
std::string gpu_lines(const RunStatus& run) {
  std::string text;
  for (const MemberStatus& member : run.members()) {
    if (member.gpus().empty()) continue;
    const std::vector<int> gpus(member.gpus().begin(), member.gpus().end());
    text += "  GPUs of " + member.host() + ": " + text_of(ranges_of(gpus)) +
            (member.gpu().empty() ? "" : " (" + member.gpu() + ")") + ", one per worker\n";
  }
  return text;
}

// The news of nodes, the newest last.
std::string news_lines(const RunStatus& run) {
  std::string text;
  for (const v1::News& news : run.news())
    text += "  " + age(static_cast<double>(news.age_ms()) / 1000) + " ago: " + news.text() + "\n";
  return text;
}

std::string page_line(const RunStatus& run) {
  if (!run.has_page()) return "";
  return "  page " + run.page().address() + " on " + run.page().host() + "\n";
}

Json json_of(const v1::News& news) {
  return {{"kind", name_of(static_cast<News::Kind>(news.kind()))},
          {"host", news.host()},
          {"text", news.text()},
          {"age", static_cast<double>(news.age_ms()) / 1000}};
}

Json json_of(const Progress& progress) {
  Json json{{"step", progress.step},
            {"total_steps", progress.total_steps},
            {"epoch", progress.epoch},
            {"loss", progress.loss},
            {"samples_per_second", progress.samples_per_second}};
  if (progress.memory) {
    json["gpu_memory_used"] = progress.memory->used;
    json["gpu_memory_peak"] = progress.memory->peak;
    json["gpu_memory_total"] = progress.memory->total;
  }
  return json;
}

Json json_of(const StepDurations& durations) {
  return {{"bounds", kStepDurationBounds}, {"counts", durations.counts}, {"seconds", durations.seconds}};
}

Json json_of(const Checkpoints& checkpoints) {
  Json json{{"written", checkpoints.written}, {"failed", checkpoints.failed}};
  if (checkpoints.step == 0) return json;
  json["step"] = checkpoints.step;
  json["seconds"] = checkpoints.seconds;
  json["bytes"] = checkpoints.bytes;
  return json;
}

Json json_of(WorkerUsage usage) {
  usage.last_line = printable_line(usage.last_line);
  return usage;
}

Json json_of(const Quiet& quiet) {
  static constexpr const char* kWhys[] = {"silent", "idle", "waits"};
  Json json{{"why", name(kWhys, quiet.why)}, {"seconds", quiet.seconds}, {"overdue", quiet.overdue}};
  if (!quiet.where.empty()) json["where"] = quiet.where;
  if (quiet.why != Quiet::kWaits) return json;
  json["waits_for"] = {{"rank", quiet.peer >= 0 ? Json(quiet.peer) : Json(nullptr)},
                       {"operation", name_of(quiet.operation)},
                       {"step", quiet.step},
                       {"bucket", quiet.bucket >= 0 ? Json(quiet.bucket) : Json(nullptr)}};
  return json;
}

Json json_of(const v1::WorkerStatus& worker) {
  Json json{{"rank", worker.rank()}, {"pid", worker.pid()}, {"step", worker.step()}};
  if (worker.has_times()) json["times"] = from_wire(worker.times());
  if (worker.has_usage()) json["usage"] = json_of(from_wire(worker.usage()));
  if (worker.has_own_time_ratio()) json["own_time_ratio"] = worker.own_time_ratio();
  if (worker.has_quiet()) json["quiet"] = json_of(from_wire(worker.quiet()));
  if (worker.has_gpu()) json["gpu"] = from_wire(worker.gpu());
  return json;
}

Json json_of(const MemberStatus& member) {
  Json json;
  json["state"] = name(kStateNames, member.state());
  json["host"] = member.host();
  json["address"] = member.address();
  json["node_rank"] = member.group_rank() >= 0 ? Json(member.group_rank()) : Json(nullptr);
  json["ranks"] = Json::array();
  for (int i = 0; member.group_rank() >= 0 && i < member.nproc(); ++i)
    json["ranks"].push_back(member.first_rank() + i);
  json["pids"] = std::vector<int>(member.pids().begin(), member.pids().end());
  json["heartbeat_age"] = member.heartbeat_age_s() >= 0 ? Json(member.heartbeat_age_s()) : Json(nullptr);
  if (!member.device().empty()) json["device"] = member.device();
  if (!member.gpus().empty()) {
    json["gpu"] = member.gpu().empty() ? Json(nullptr) : Json(member.gpu());
    json["gpus"] = std::vector<int>(member.gpus().begin(), member.gpus().end());
  }
  if (member.has_progress()) json["progress"] = json_of(from_wire(member.progress()));
  if (!member.workers().empty()) json["workers"] = Json::array();
  for (const auto& worker : member.workers()) json["workers"].push_back(json_of(worker));
  return json;
}

}  // namespace

std::string status_text(const RunStatus& run, const std::string& endpoint, const Palette& palette) {
  std::string text = heading(run, endpoint, palette);
  if (!run.reason().empty()) text += "  because " + run.reason() + "\n";
  text += counts(run);
  if (run.has_progress()) text += progress_line(from_wire(run.progress())) + goodput_line(run);
  if (run.has_verdict()) text += "  " + run.verdict().text() + "\n";
  return text + (run.members_size() > 0 ? table(run) : "") + worker_lines(run) + gpu_lines(run) +
         news_lines(run) + page_line(run);
}

std::string page_link(const v1::Page& page, const std::string& run_id) {
  std::string link = page.address() + "/?run=";
  for (const char c : run_id) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.';
    link += plain ? std::string(1, c) : "%" + hexadecimal({&byte, 1});
  }
  return link + "&token=" + page.token();
}

Json status_json(const RunStatus& run, const std::string& endpoint) {
  Json json;
  json["version"] = kJsonVersion;
  json["run_id"] = run.run_id();
  json["endpoint"] = endpoint;
  json["phase"] = name(kPhaseNames, run.phase());
  json["generation"] = run.generation();
  json["generation_age"] = run.generation_age_s();
  json["world_size"] = run.world_size();
  json["min_nodes"] = run.min_nodes();
  json["max_nodes"] = run.max_nodes();
  json["restarts"] = run.restart_count();
  json["max_restarts"] = run.max_restarts();
  json["membership_changes"] = run.membership_changes();
  json["reason"] = run.reason();
  if (run.phase() == RunStatus::OVER) {
    json["exit_code"] = run.exit_code();
    json["ended_age"] = run.ended_age_s();
  }
  if (run.has_progress()) json["progress"] = json_of(from_wire(run.progress()));
  if (run.has_failures()) json["failures"] = from_wire(run.failures());
  if (run.has_step_durations()) json["step_durations"] = json_of(from_wire(run.step_durations()));
  if (run.has_checkpoints()) json["checkpoints"] = json_of(from_wire(run.checkpoints()));
  if (run.has_goodput()) json["goodput"] = goodput_json(from_wire(run.goodput()));
  if (run.join_timeout_left_s() > 0) json["join_timeout_left"] = run.join_timeout_left_s();
  if (run.has_verdict()) json["verdict"] = verdict_json(from_wire(run.verdict()));
  if (run.has_page()) json["page"] = {{"address", run.page().address()}, {"host", run.page().host()}};
  json["news"] = Json::array();
  for (const v1::News& news : run.news()) json["news"].push_back(json_of(news));
  json["nodes"] = Json::array();
  for (const MemberStatus& member : run.members()) json["nodes"].push_back(json_of(member));
  return json;
}

// Names of runs and hosts may have any bytes, also some that are not UTF-8.
std::string json_document(const Json& json) { return json_text(json, 2) + "\n"; }

std::string json_line(const Json& json) { return json_text(json) + "\n"; }

}  // namespace rendezvous
}  // namespace dtrun
