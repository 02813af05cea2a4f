#include "cmd/plan/output_options.h"

#include <algorithm>
#include <set>

#include "agent/core/line_prefix.h"
#include "cmd/options/values.h"
#include "proto/base/ids.h"
#include "proto/base/temporary.h"
#include "proto/core/nearest.h"

namespace dtrun::cmd {
namespace {

class OutputReader {
 public:
  OutputReader(const Lookup& given, const Environment& environment, const Notice& notice, JobSpec* spec)
      : given_(given), environment_(environment), notice_(notice), spec_(*spec) {}

  Status read() {
    if (const auto directory = given_("log_dir")) spec_.log_dir = directory->value;
    for (auto part : {&OutputReader::read_streams, &OutputReader::read_rank_filter, &OutputReader::read_words,
                      &OutputReader::read_prefix, &OutputReader::read_files}) {
      if (Status status = (this->*part)(); !status.ok()) return status;
    }
    return {};
  }

 private:
  Status read_streams() {
    Streams redirected, teed;
    const auto redirects = given_("redirects"), tee = given_("tee");
    for (const auto& [option, streams] : {std::pair(redirects, &redirected), std::pair(tee, &teed)}) {
      if (!option) continue;
      Result<Streams> parsed = parse_streams(*option);
      if (!parsed.ok()) return parsed.status();
      *streams = parsed.value();
    }
    const bool chosen = redirects || tee;
    if (!chosen) teed.all = spec_.log_dir.empty() ? 0 : 3;
    for (int rank = 0; rank < spec_.nproc; ++rank) {
      const auto targets = [&](int bit) {
        const bool to_both = teed.of(rank) & bit, to_file = redirected.of(rank) & bit;
        return StreamTargets{to_both || !to_file, to_both || to_file, to_both};
      };
      spec_.output.workers.push_back({targets(1), targets(2)});
    }
    if (chosen && spec_.log_dir.empty() && any([](const StreamTargets& t) { return t.file; })) {
      spec_.log_dir = temporary_folder() / ("dtrun_" + random_id(4));
      notice_((tee ? tee : redirects)->source + " without --log_dir: files are in " + spec_.log_dir.string());
    }
    return {};
  }

  Status read_rank_filter() {
    const auto option = given_("local_ranks_filter");
    if (!option || option->value.empty()) return {};
    Result<std::set<int>> ranks = parse_ranks(*option);
    if (!ranks.ok()) return ranks.status();
    for (int rank = 0; rank < spec_.nproc; ++rank) {
      if (ranks.value().count(rank)) continue;
      WorkerOutput& worker = spec_.output.workers[static_cast<std::size_t>(rank)];
      worker.out.console = worker.err.console = false;
    }
    if (ranks.value().empty() || *ranks.value().begin() >= spec_.nproc) {
      notice_(quoted(*option) + ": no worker here has such a local rank, the console shows none");
    }
    return {};
  }

  Status read_words() {
    for (const char* name : {"duplicate_stdout_filters", "duplicate_stderr_filters"}) {
      const auto option = given_(name);
      if (!option) continue;
      const bool out = std::string(name) == "duplicate_stdout_filters";
      auto& words = out ? spec_.output.stdout_filters : spec_.output.stderr_filters;
      words = split_words(option->value);
      const auto& workers = spec_.output.workers;
      const bool effective = std::any_of(workers.begin(), workers.end(), [&](const WorkerOutput& worker) {
        return (out ? worker.out : worker.err).filtered;
      });
      if (!words.empty() && !effective) {
        notice_(option->source + " has no effect: it is for streams that --tee (or --log_dir alone) writes");
      }
    }
    return {};
  }

  Status read_prefix() {
    std::string& prefix = spec_.output.prefix;
    if (const auto option = given_("log_prefix")) {
      if (const auto unknown = agent::unknown_placeholder(option->value)) return refuse(*option, *unknown);
      prefix = option->value;
      if (!prefix.empty() && prefix.back() != ' ') prefix += ' ';
      return {};
    }
    const char* variable = environment_("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    if (const auto option = given_("log_line_prefix_template")) {
      prefix = agent::from_torchrun_template(option->value);
    } else if (variable != nullptr && *variable != '\0') {
      prefix = agent::from_torchrun_template(variable);
    }
    return {};
  }

  static Status refuse(const Given& option, const std::string& unknown) {
    std::string allowed;
    for (const char* field : agent::kPrefixFields) {
      allowed += (allowed.empty() ? "{" : ", {") + std::string(field) + "}";
    }
    return usage(quoted(option) + ": unknown field {" + (unknown == "{" ? "" : unknown) + "}, expected " +
                 allowed + " (\"{{\" is a brace)");
  }

  Status read_files() {
    if (const auto option = given_("log_timestamps")) spec_.output.timestamps = option->value == "true";
    const auto option = given_("log_max_size");
    if (!option) return {};
    Result<std::uint64_t> size = parse_size(*option);
    if (!size.ok()) return size.status();
    spec_.output.max_file_size = size.value();
    if (spec_.log_dir.empty() || !any([](const StreamTargets& t) { return t.file; })) {
      notice_(option->source + " has no effect: no output goes to a file (see --log_dir)");
    }
    return {};
  }

  template <typename Holds>
  bool any(Holds holds) const {
    const auto& workers = spec_.output.workers;
    return std::any_of(workers.begin(), workers.end(),
                       [&](const WorkerOutput& worker) { return holds(worker.out) || holds(worker.err); });
  }

  const Lookup& given_;
  const Environment& environment_;
  const Notice& notice_;
  JobSpec& spec_;
};

}  // namespace

Status read_output_options(const Lookup& given, const Environment& environment, const Notice& notice,
                           JobSpec* spec) {
  return OutputReader(given, environment, notice, spec).read();
}

}  // namespace dtrun::cmd
