#include "agent/output/output_plan.h"

namespace dtrun::agent {

std::filesystem::path run_dir(const JobSpec& spec) {
  return spec.log_dir.empty() ? spec.log_dir : spec.log_dir / run_folder(spec.run_id);
}

std::vector<std::filesystem::path> history_folders(const JobSpec& spec) {
  std::vector<std::filesystem::path> folders;
  if (!spec.log_dir.empty()) folders.push_back(run_dir(spec));
  if (const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
      trainer != nullptr && !trainer->output_dir.empty())
    folders.emplace_back(trainer->output_dir);
  return folders;
}

std::filesystem::path folder_in_use(const JobSpec& spec) {
  const auto* trainer = std::get_if<BuiltinTrainer>(&spec.program);
  return trainer != nullptr && trainer->output_dir_in_use ? trainer->output_dir : "";
}

LinePrefix OutputPlanner::prefix(int rank, int local_rank) const {
  return fill_prefix(spec_.output.prefix, {spec_.role, rank, local_rank, host_});
}

StreamPlan OutputPlanner::plan(Console& console, Console::Stream stream, int rank, int local_rank,
                               const std::filesystem::path& log_dir) {
  const bool out = stream == Console::Stream::kOut;
  const OutputSpec& output = spec_.output;
  const WorkerOutput worker = output.of(local_rank);
  const StreamTargets& targets = out ? worker.out : worker.err;
  StreamPlan plan;
  plan.console = targets.console;
  plan.prefix = prefix(rank, local_rank);
  plan.timestamps = output.timestamps;
  plan.verbatim = spec_.nproc == 1 && output.prefix.empty() && !output.timestamps;
  if (log_dir.empty()) return plan;
  if (targets.file)
    plan.file = std::make_shared<QueuedLog>(disk_, log_dir / (out ? "stdout.log" : "stderr.log"),
                                            output.max_file_size, LogFile::Writers::kOneProcess);
  plan.filters = out ? output.stdout_filters : output.stderr_filters;
  if (targets.filtered && !plan.filters.empty()) {
    const char* name = out ? "filtered_stdout.log" : "filtered_stderr.log";
    plan.filtered = filtered_file(console, log_dir.parent_path() / name);
  }
  return plan;
}

std::shared_ptr<QueuedLog> OutputPlanner::filtered_file(Console& console, const std::filesystem::path& path) {
  std::weak_ptr<QueuedLog>& known = filtered_[path];
  if (auto file = known.lock()) return file;
  auto file =
      std::make_shared<QueuedLog>(disk_, path, spec_.output.max_file_size, LogFile::Writers::kAnyNumber);
  file->listen({.failed = [&console](const Status& status) { console.notice(status.message()); },
                .unwritten = {},
                .written = {}});
  known = file;
  return file;
}

}  // namespace dtrun::agent
