#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/job_registry.h"
#include "cmd/commands/answer.h"
#include "cmd/commands/commands.h"
#include "cmd/commands/status/coordinator_address.h"
#include "cmd/options/option_table.h"
#include "cmd/options/values.h"
#include "cmd/plan/key_options.h"
#include "cmd/trace/chrome.h"
#include "proto/base/clock.h"
#include "proto/base/ids.h"
#include "proto/base/text_in.h"
#include "proto/core/exit_codes.h"
#include "proto/core/text.h"
#include "rendezvous/client/status_client.h"

namespace dtrun::cmd {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAnswerLimit = 5s, kBetweenCalls = 50ms;
constexpr int kSteps = 5, kMostSteps = 1000;
constexpr auto kLimit = 60s;

constexpr OptionEntry kOptionsOfTrace[] = {
    {.name = "steps", .placeholder = "N", .help = "Until each rank has done N steps [5]"},
    {.name = "limit",
     .placeholder = "SECONDS",
     .help = "With what there is by then, if steps take longer [60]"},
    {.name = "output",
     .short_name = "o",
     .placeholder = "FILE",
     .help = "Where the trace goes; - is standard output [trace-RUN_ID.json]",
     .is_path = true},
    {.name = "rdzv_endpoint",
     .placeholder = "HOST[:PORT]",
     .help = "One HOST, or HOST,HOST,HOST [this host's jobs]"},
    kOptionOfLauncher<"key_file", "as for the launcher">,
    {.name = "insecure", .help = "Ask a coordinator that has no key, in plain text"},
    kColorOption,
    kHelpOption};

struct TraceQuestion {
  std::string endpoint, run_id, output;
  int steps = kSteps;
  std::chrono::milliseconds limit = kLimit;
  std::optional<rendezvous::JobKey> key = {};
};

// The signal that ends the tracing; what there is by then is written all the same.
volatile sig_atomic_t stopped_by = 0;

// The coordinator of one run, asked again and again.
class TraceSource {
 public:
  TraceSource(const CoordinatorAddress& address, std::string run_id,
              const std::optional<rendezvous::JobKey>& key)
      : endpoint_(address.endpoint), key_(key_for(address, key)) {
    request_.set_run_id(std::move(run_id));
    request_.set_trace(random_id());
  }

  Result<rendezvous::v1::TraceReply> ask(bool end = false) {
    request_.set_end(end);
    auto reply = rendezvous::fetch_trace(endpoint_.host, endpoint_.port, request_, kAnswerLimit, key_);
    if (reply.ok() && !reply.value().refusal().empty())
      return Status(kExitUnavailable, reply.value().refusal());
    return reply;
  }
  const std::string& run_id() const { return request_.run_id(); }

 private:
  const Endpoint endpoint_;
  const std::optional<rendezvous::JobKey> key_;
  rendezvous::v1::TraceRequest request_;
};

// The only run that goes on at these addresses, or the one that is named.
Result<TraceSource> find_source(const TraceQuestion& question) {
  ASSIGN_OR_RETURN(const auto addresses, addresses_of(question.endpoint, question.run_id));
  std::vector<TraceSource> found;
  std::string names;
  Status failure;
  for (const CoordinatorAddress& address : addresses) {
    const auto reply = rendezvous::fetch_status(address.endpoint.host, address.endpoint.port, question.run_id,
                                                kAnswerLimit, key_for(address, question.key));
    if (!reply.ok()) failure = reply.status();
    if (!reply.ok()) continue;
    for (const auto& run : reply.value().runs()) {
      if (question.run_id.empty() && run.phase() == rendezvous::v1::RunStatus::OVER) continue;
      found.emplace_back(address, run.run_id(), question.key);
      names += (names.empty() ? "" : ", ") + run.run_id();
    }
  }
  if (found.size() == 1) return std::move(found.front());
  if (found.size() > 1) return usage("several runs go on: " + names + "; dtrun trace RUN_ID traces one");
  if (!failure.ok()) return failure;
  for (const agent::EndedJob& ended : agent::ended_jobs(agent::registry_folder(), wall_seconds()))
    if (ended.job.run_id == question.run_id)
      return Status(kExitUnavailable,
                    "run " + question.run_id + " is over: only a run that goes on can be traced");
  const std::string what = question.run_id.empty() ? "no run that goes on" : "no run " + question.run_id;
  return Status(kExitUnavailable,
                question.endpoint.empty()
                    ? "this user has " + what + " here; elsewhere: --rdzv_endpoint HOST[:PORT]"
                    : what + " at " + question.endpoint);
}

// Until there is enough, the limit is over, or a signal comes. Returns the reason why it was cut short;
// empty: it was not.
std::string take(TraceSource& source, const TraceQuestion& question, TraceRecord* record) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, [](int caught) { stopped_by = caught; });
  const auto until = Clock::now() + question.limit;
  for (bool told = false;;) {
    const bool last = record->has(question.steps) || Clock::now() >= until || stopped_by != 0;
    const auto reply = source.ask(last);
    if (!reply.ok()) return reply.status().message();
    record->add(reply.value());
    if (!record->refusal().empty()) return record->refusal();
    if (!std::exchange(told, true))
      notice("tracing run " + source.run_id() + " until each rank has done " +
             counted(question.steps, "step"));
    if (last) return "";
    if (!record->more()) std::this_thread::sleep_for(kBetweenCalls);
  }
}

Status not_written(const Status& why) {
  return Status(why.exit_code(), why.message() + "; -o FILE writes elsewhere");
}

// Before anything is traced for it.
Status check_place(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (file == "-" || access(folder.c_str(), W_OK) == 0) return Status();
  return not_written(errno_status(kExitCannotCreate, "cannot write " + file, errno));
}

int write_trace(const std::string& text, const std::string& file, const std::string& sentence) {
  if (file == "-") return answer(text);
  const Status status = replace_text(file, text);
  if (!status.ok()) return fail(not_written(status));
  return answer("wrote " + file + sentence + "; open it with https://ui.perfetto.dev or chrome://tracing\n");
}

std::string sentence_of(const TraceRecord& record) {
  std::string text = ": " + counted(static_cast<int>(record.ranks().size()), "rank");
  const std::int64_t error = record.clock_error();
  if (error == 0) return text;
  return text + ", times of two nodes right to " + decimals(static_cast<double>(error) / 1e6, 3) + " ms";
}

int trace(const TraceQuestion& question) {
  Result<TraceSource> source = find_source(question);
  if (!source.ok()) return fail(source.status());
  const std::string& run_id = source.value().run_id();
  std::string file = question.output;
  if (file.empty()) {
    file = "trace-" + run_id + ".json";
    std::ranges::replace(file, '/', '_');
  }
  if (const Status place = check_place(file); !place.ok()) return fail(place);
  TraceRecord record;
  const std::string cut = take(source.value(), question, &record);
  if (record.ranks().empty() && !cut.empty()) return fail(Status(kExitUnavailable, cut));
  const int code = write_trace(chrome_json(record, run_id, question.steps), file, sentence_of(record));
  std::string missing = cut.empty() ? "" : cut + "\n";
  for (const std::string& one : record.missing(question.steps)) missing += one + "\n";
  if (code != kExitOk || missing.empty()) return code;
  missing.pop_back();
  const int reason = stopped_by != 0 ? exit_code_of_signal(stopped_by) : kExitUnavailable;
  return fail(Status(reason, "the trace is not whole: " + missing));
}

int run_trace(const Invocation& invocation) {
  const Values<kOptionsOfTrace> options{invocation.values};
  TraceQuestion question;
  question.run_id = invocation.argument;
  if (const auto given = options.given("rdzv_endpoint")) question.endpoint = given->value;
  if (const auto given = options.given("output")) question.output = given->value;
  const auto steps = [](const Given& given) {
    return parse_count(given, kMostSteps, "1 to " + std::to_string(kMostSteps));
  };
  if (Status read = read_given(options.given("steps"), &question.steps, steps); !read.ok()) return fail(read);
  if (Status read = read_given(options.given("limit"), &question.limit, parse_seconds); !read.ok())
    return fail(read);
  const auto key = key_of_asker(options, invocation.environment);
  if (!key.ok()) return fail(key.status());
  question.key = key.value();
  return trace(question);
}

}  // namespace

constinit const Command kTraceCommand{
    .name = "trace",
    .summary = "Show what all ranks of a training do, on one clock",
    .description =
        "Writes down what each rank of a run of dtrun's own trainer does for some steps: its lanes' reading "
        "and math, the buckets of gradients that it sends and waits for, with arrows from sender to "
        "receiver, "
        "updates, evaluations and saves. The file is JSON that https://ui.perfetto.dev and chrome://tracing "
        "open; Ctrl-C writes what there is. RUN may be left out if only one run of this user goes on here. A "
        "run that nobody traces pays nothing for it, and a traced one computes the same bits.",
    .argument = "[RUN]",
    .options = kOptionsOfTrace,
    .rare = true,
    .run = run_trace};

}  // namespace dtrun::cmd
