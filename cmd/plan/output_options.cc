#include "cmd/plan/output_options.h"

#include <algorithm>
#include <set>

#include "agent/text/line_prefix.h"
#include "proto/base/ids.h"
#include "proto/base/temporary.h"

namespace dtrun::cmd {
namespace {

template <typename Holds>
bool any_stream(const OutputSpec& output, Holds holds) {
  return std::ranges::any_of(
      output.workers, [&](const WorkerOutput& worker) { return holds(worker.out) || holds(worker.err); });
}

bool any_file(const OutputSpec& output) {
  return any_stream(output, [](const StreamTargets& stream) { return stream.file; });
}

Status read_log_dir(Draft& draft) {
  if (const auto directory = draft.options.given("log_dir")) draft.spec.log_dir = directory->value;
  return {};
}

Status read_streams(Draft& draft) {
  JobSpec& spec = draft.spec;
  const auto redirects = draft.options.given("redirects"), tee = draft.options.given("tee");
  Streams redirected, teed;
  RETURN_IF_ERROR(draft.read("redirects", &redirected, parse_streams));
  RETURN_IF_ERROR(draft.read("tee", &teed, parse_streams));
  const bool chosen = redirects || tee;
  if (!chosen) teed.all = spec.log_dir.empty() ? 0 : 3;
  for (int rank = 0; rank < spec.nproc; ++rank) {
    const auto targets = [&](int bit) {
      const bool to_both = teed.of(rank) & bit, to_file = redirected.of(rank) & bit;
      return StreamTargets{.console = to_both || !to_file, .file = to_both || to_file, .filtered = to_both};
    };
    spec.output.workers.push_back({.out = targets(1), .err = targets(2)});
  }
  if (chosen && spec.log_dir.empty() && any_file(spec.output)) {
    spec.log_dir = temporary_folder() / ("dtrun_" + random_id(4));
    draft.notice((tee ? tee : redirects)->source + " without --log_dir: files are in " +
                 spec.log_dir.string());
  }
  return {};
}

Status read_rank_filter(Draft& draft) {
  const auto option = draft.options.given("local_ranks_filter");
  if (!option || option->value.empty()) return {};
  ASSIGN_OR_RETURN(std::set<int> ranks, parse_ranks(*option));
  for (int rank = 0; rank < draft.spec.nproc; ++rank) {
    if (ranks.count(rank)) continue;
    WorkerOutput& worker = draft.spec.output.workers[static_cast<std::size_t>(rank)];
    worker.out.console = worker.err.console = false;
  }
  if (ranks.empty() || *ranks.begin() >= draft.spec.nproc) {
    draft.notice(quoted(*option) + ": no worker here has such a local rank, the console shows none");
  }
  return {};
}

void read_filters(const Draft& draft, OptionName name, StreamTargets WorkerOutput::*stream,
                  std::vector<std::string>* words) {
  const auto option = draft.options.given(name);
  if (!option) return;
  *words = split_words(option->value);
  const bool effective = std::ranges::any_of(
      draft.spec.output.workers, [&](const WorkerOutput& worker) { return (worker.*stream).filtered; });
  if (words->empty() || effective) return;
  draft.notice(option->source + " has no effect: it is for streams that --tee (or --log_dir alone) writes");
}

Status read_words(Draft& draft) {
  read_filters(draft, "duplicate_stdout_filters", &WorkerOutput::out, &draft.spec.output.stdout_filters);
  read_filters(draft, "duplicate_stderr_filters", &WorkerOutput::err, &draft.spec.output.stderr_filters);
  return {};
}

Status unknown_field(const Given& option, const std::string& unknown) {
  std::string allowed;
  for (const char* field : agent::kPrefixFields) {
    allowed += (allowed.empty() ? "{" : ", {") + std::string(field) + "}";
  }
  return usage(quoted(option) + ": unknown field {" + (unknown == "{" ? "" : unknown) + "}, expected " +
               allowed + " (\"{{\" is a brace)");
}

Status read_prefix(Draft& draft) {
  std::string& prefix = draft.spec.output.prefix;
  if (const auto option = draft.options.given("log_prefix")) {
    if (const auto unknown = agent::unknown_placeholder(option->value))
      return unknown_field(*option, *unknown);
    prefix = option->value;
    if (!prefix.empty() && prefix.back() != ' ') prefix += ' ';
    return {};
  }
  const char* variable = draft.environment("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (const auto option = draft.options.given("log_line_prefix_template")) {
    prefix = agent::from_torchrun_template(option->value);
  } else if (variable != nullptr && *variable != '\0') {
    prefix = agent::from_torchrun_template(variable);
  }
  return {};
}

Status read_files(Draft& draft) {
  OutputSpec& output = draft.spec.output;
  output.timestamps = draft.options.flag("log_timestamps");
  RETURN_IF_ERROR(draft.read("log_max_size", &output.max_file_size, parse_size));
  if (draft.spec.log_dir.empty() || !any_file(output)) {
    draft.no_effect("log_max_size", ": no output goes to a file (see --log_dir)");
  }
  return {};
}

Status read_on_event(Draft& draft) {
  const auto command = draft.options.given("on_event");
  if (command && command->value.find_first_not_of(" \t\n") == std::string::npos)
    return usage(quoted(*command) + ": expected a shell's command, such as 'cat >>events.txt'");
  if (command) draft.spec.on_event = command->value;
  return {};
}

Status read_colour(Draft& draft) { return draft.read("color", &draft.spec.output.colour, parse_colour); }

Status read_progress(Draft& draft) {
  const auto progress = draft.options.given("progress");
  if (!draft.config && progress && progress->value == "json") {
    draft.notice(quoted(*progress) + " has no effect: only the built-in trainer reports its progress");
  }
  return draft.read("progress", &draft.spec.output.progress, parse_progress);
}

}  // namespace

Status read_output_options(Draft& draft) {
  return run_parts(draft, {read_log_dir, read_streams, read_rank_filter, read_words, read_prefix, read_files,
                           read_on_event, read_colour, read_progress});
}

}  // namespace dtrun::cmd
