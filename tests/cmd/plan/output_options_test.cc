#include "cmd/plan/output_options.h"

#include <doctest/doctest.h>

#include <map>

namespace dtrun::output_options_test {

using namespace dtrun::cmd;

namespace {

using Values = std::map<std::string, std::string>;

struct Read {
  Status status;
  JobSpec spec;
  std::vector<std::string> notices;

  // "out: console file, err: file" and so on
  std::string targets(int rank) const {
    const WorkerOutput worker = spec.output.of(rank);
    const auto text = [](const StreamTargets& t) {
      return std::string(t.console ? "console " : "") + (t.file ? "file " : "") +
             (t.filtered ? "filtered " : "");
    };
    return "out: " + text(worker.out) + "err: " + text(worker.err);
  }
};

Read read(const Values& values, int nproc = 2, const Values& variables = {}) {
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  Read result;
  const Notice notice = [&](const std::string& text) { result.notices.push_back(text); };
  const Machine machine;
  Options options;
  for (const auto& [name, value] : values) options.values[name] = {.value = value, .source = "--" + name};
  Draft draft{
      .typed = options, .options = options, .machine = machine, .environment = environment, .notice = notice};
  draft.spec.nproc = nproc;
  result.status = read_output_options(draft);
  result.spec = draft.spec;
  return result;
}

Read good_read(const Values& values, int nproc = 2, const Values& variables = {}) {
  Read result = read(values, nproc, variables);
  REQUIRE_MESSAGE(result.status.ok(), result.status.message());
  return result;
}

std::string bad_read(const Values& values) {
  const Read result = read(values);
  REQUIRE_FALSE(result.status.ok());
  CHECK(result.status.exit_code() == kExitUsage);
  return result.status.message();
}

}  // namespace

TEST_CASE("without options output goes to the console; with a log directory to both") {
  CHECK(good_read({}).targets(0) == "out: console err: console ");
  CHECK(good_read({{"log_dir", "/l"}}).targets(1) ==
        "out: console file filtered err: console file filtered ");
}

TEST_CASE("redirected streams go to the file only, teed ones to both, others to the console only") {
  CHECK(good_read({{"log_dir", "/l"}, {"redirects", "1"}}).targets(0) == "out: file err: console ");
  CHECK(good_read({{"log_dir", "/l"}, {"redirects", "3"}, {"tee", "2"}}).targets(0) ==
        "out: file err: console file filtered ");
  CHECK(good_read({{"log_dir", "/l"}, {"tee", "0"}}).targets(0) == "out: console err: console ");
}

TEST_CASE("a mapping is by local rank; a rank that it does not name has none") {
  const Read result = good_read({{"log_dir", "/l"}, {"redirects", "0:1,1:2"}}, 3);
  CHECK(result.targets(0) == "out: file err: console ");
  CHECK(result.targets(1) == "out: console err: file ");
  CHECK(result.targets(2) == "out: console err: console ");
  CHECK(good_read({{"log_dir", "/l"}, {"tee", "9:1"}}).targets(0) == "out: console err: console ");
}

TEST_CASE("files without a log directory go to a temporary one, which is named") {
  const Read result = good_read({{"tee", "3"}});
  CHECK(result.spec.log_dir.string().find("dtrun_") != std::string::npos);
  REQUIRE(result.notices.size() == 1);
  CHECK(result.notices[0] == "--tee without --log_dir: files are in " + result.spec.log_dir.string());
  CHECK(good_read({{"tee", "9:1"}, {"redirects", "9:1"}}).spec.log_dir.empty());
}

TEST_CASE("what is no choice of streams is refused") {
  for (const char* wrong : {"4", "-1", "", "x", "0:4", "0:", ":1", "0:1,", "0:1,1", "0:1;1:2"}) {
    if (std::string(wrong) == "0:1,") continue;  // a comma at the end harms nobody
    CHECK_MESSAGE(bad_read({{"redirects", wrong}}).find("expected 0 (none)") != std::string::npos, wrong);
  }
}

TEST_CASE("the ranks' filter silences the console and nothing else") {
  const Read result = good_read({{"log_dir", "/l"}, {"local_ranks_filter", "1, 2"}}, 3);
  CHECK(result.targets(0) == "out: file filtered err: file filtered ");
  CHECK(result.targets(1) == "out: console file filtered err: console file filtered ");
  CHECK(good_read({{"local_ranks_filter", "5"}}).notices.size() == 1);
  CHECK(bad_read({{"local_ranks_filter", "a"}}).find("expected local ranks") != std::string::npos);
}

TEST_CASE("filter words stand between commas, a doubled comma is one") {
  const Read result = good_read({{"log_dir", "/l"}, {"duplicate_stdout_filters", "apple,a,,b,"}});
  CHECK(result.spec.output.stdout_filters == std::vector<std::string>{"apple", "a,b"});
  CHECK(result.notices.empty());
  CHECK(good_read({{"duplicate_stderr_filters", "x"}})
            .notices.at(0)
            .find("--duplicate_stderr_filters has no effect") == 0);
}

TEST_CASE("the prefix may name fields; a wrong one is refused, torchrun's template is understood") {
  CHECK(good_read({}).spec.output.prefix == "[{role}:{rank}] ");
  CHECK(good_read({{"log_prefix", "<{host} {time}>"}}).spec.output.prefix == "<{host} {time}> ");
  CHECK(good_read({{"log_prefix", ""}}).spec.output.prefix.empty());
  CHECK(bad_read({{"log_prefix", "{rnk}"}}).find("unknown field {rnk}, expected {role}, {rank}") !=
        std::string::npos);
  CHECK(bad_read({{"log_prefix", "{rank"}}).find("unknown field") != std::string::npos);
  CHECK(good_read({{"log_line_prefix_template", "[${role_name}${local_rank}]:"}}).spec.output.prefix ==
        "[{role}{local_rank}]:");
  CHECK(good_read({}, 2, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${hostname} {x}"}}).spec.output.prefix ==
        "{host} {{x}}");
}

TEST_CASE("colour and progress are one of their words") {
  CHECK(good_read({}).spec.output.colour == ColourMode::kAuto);
  CHECK(good_read({{"color", "always"}}).spec.output.colour == ColourMode::kAlways);
  CHECK(good_read({{"color", "never"}}).spec.output.colour == ColourMode::kNever);
  CHECK(bad_read({{"color", ""}}) == "--color=: expected auto, always or never");
  CHECK(good_read({}).spec.output.progress == ProgressMode::kAuto);
  CHECK(good_read({{"progress", "bar"}}).spec.output.progress == ProgressMode::kBar);
  CHECK(good_read({{"progress", "plain"}}).spec.output.progress == ProgressMode::kPlain);
  CHECK(good_read({{"progress", "json"}}).spec.output.progress == ProgressMode::kJson);
  CHECK(good_read({{"progress", "none"}}).spec.output.progress == ProgressMode::kNone);
  CHECK(bad_read({{"progress", "Bar"}}) == "--progress=Bar: expected auto, bar, plain, json or none");
}

TEST_CASE("a size has a unit or none") {
  const auto size = [](const char* text) {
    return good_read({{"log_dir", "/l"}, {"log_max_size", text}}).spec.output.max_file_size;
  };
  CHECK(size("123") == 123);
  CHECK(size("500K") == 500 * 1024);
  CHECK(size("2g") == std::uint64_t{2} << 30);
  for (const char* wrong : {"", "0", "K", "1X", "-1", "1.5G", "99999999999T", "1KB"}) {
    CHECK_MESSAGE(bad_read({{"log_max_size", wrong}}).find("expected a size") != std::string::npos, wrong);
  }
  CHECK(good_read({{"log_max_size", "1K"}}).notices.at(0).find("--log_max_size has no effect") == 0);
}

}  // namespace dtrun::output_options_test
