#include "worker/prepare/prepare.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "worker/base/error.h"
#include "worker/checkpoint/durable.h"
#include "worker/config/strict_json.h"
#include "worker/data/message.h"
#include "worker/prepare/encoding_team.h"
#include "worker/prepare/inputs.h"
#include "worker/prepare/progress_line.h"
#include "worker/prepare/shard_writer.h"
#include "worker/prepare/target_directory.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMostIds = 1 << 16;  // ids have 16 bits

struct PrepareJob {
  fs::path directory;
  std::string tokenizer, eos_token, name;
  std::uint64_t shard_tokens = 0;
  double val_fraction = 0;
  std::string json_field, pattern;
  int threads = 1;
  std::vector<std::string> texts;
};

std::atomic<int> g_signal{0};

void note_signal(int signal) { g_signal = signal; }

// Thrown to end the preparation after a signal, so that its files are removed.
struct Stopped {
  int signal;
};

void stop_if_told() {
  if (const int signal = g_signal) throw Stopped{signal};
}

template <typename T>
T required(Result<T> result) {
  if (!result.ok()) throw WorkerError(result.status().exit_code(), result.status().message());
  return std::move(result).value();
}

// Shows the progress on a terminal, in one line that is overwritten.
class ProgressDisplay {
 public:
  ~ProgressDisplay() { clear(); }

  void show(const PrepareProgress& progress) {
    const auto now = Clock::now();
    if (!terminal_ || now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    winsize size{};
    std::size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    const std::string line = progress_line(progress).substr(0, columns - 1);
    std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
    any_ = true;
  }

  void clear() {
    if (std::exchange(any_, false)) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool any_ = false;
  Clock::time_point shown_ = Clock::now() - std::chrono::seconds(1);
};

std::int32_t end_of_text(const Tokenizer& tokenizer, const PrepareJob& job) {
  if (tokenizer.size() > kMostIds) {
    throw WorkerError(kExitNoInput,
                      job.tokenizer + ": has " +
                          with_thousands(static_cast<std::uint64_t>(tokenizer.size())) +
                          " tokens, and the shards' numbers of 16 bits go up to 65,536; use a tokenizer with "
                          "fewer, or train on the text itself (data.type \"text\" with data.tokenizer)");
  }
  if (const auto id = tokenizer.id_of(job.eos_token)) return *id;
  std::string special;
  for (const AddedToken& added : tokenizer.spec().added) {
    if (special.size() < 200) special += (special.empty() ? "" : ", ") + printable(added.content);
  }
  throw WorkerError(kExitNoInput, job.tokenizer + ": has no token \"" + job.eos_token +
                                      "\" to put before each document; name one with --eos_token" +
                                      (special.empty() ? "" : " (its special tokens: " + special + ")"));
}

struct Totals {
  std::uint64_t documents = 0, bytes = 0;
};

Totals encode_all(const Inputs& inputs, const EncodingRules& rules, const Tokenizer& tokenizer, int threads,
                  ShardWriter& train, ShardWriter& val) {
  Totals totals;
  ProgressDisplay display;
  UnitReader reader(inputs, rules.val_fraction, tokenizer);
  EncodingTeam team(inputs, rules, tokenizer, threads);
  const auto began = Clock::now();
  std::deque<std::uint64_t> sizes;  // of the units at work
  for (bool more = true; more || !team.is_empty();) {
    stop_if_told();
    if (more && team.has_room()) {
      auto unit = required(reader.next());
      more = unit.has_value();
      if (!more) continue;
      sizes.push_back(unit->bytes.size());
      team.hand_in(*std::move(unit));
      continue;
    }
    display.show({.bytes = totals.bytes,
                  .all_bytes = inputs.bytes,
                  .tokens = train.tokens() + val.tokens(),
                  .seconds = std::chrono::duration<double>(Clock::now() - began).count()});
    auto result = team.take_out(std::chrono::milliseconds(100));
    if (!result) continue;
    const UnitTokens tokens = required(*std::move(result));
    train.add(tokens.train);
    val.add(tokens.val);
    totals.documents += tokens.documents;
    totals.bytes += sizes.front();
    sizes.pop_front();
  }
  return totals;
}

void check_enough(const PrepareJob& job, const Totals& totals, const ShardWriter& train,
                  const ShardWriter& val) {
  if (totals.documents == 0)
    throw WorkerError(kExitNoInput, job.texts.front() + ": no document has any text; name files with text");
  if (train.tokens() == 0)
    throw WorkerError(kExitNoInput, "nothing is left to train on; lower --val_fraction or name more text");
  if (val.tokens() == 0 && job.val_fraction > 0)
    throw WorkerError(
        kExitNoInput,
        "the text is too short for a part of it to be for validation; raise --val_fraction or name "
        "more text");
}

void prepare(const PrepareJob& job) {
  const auto began = Clock::now();
  const LoadedTokenizer loaded = required(load_tokenizer(job.tokenizer));
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const std::int32_t eos = end_of_text(tokenizer, job);
  const Inputs inputs = required(find_inputs(job.texts, job.pattern, job.val_fraction));
  TargetDirectory target(job.directory);
  const EncodingRules rules{.json_field = job.json_field,
                            .end_of_text = eos,
                            .val_fraction = job.val_fraction,
                            .cut_documents = inputs.cut_documents};
  // The shards are numbered as llm.c does.
  ShardWriter train(target.scratch(), job.name + "_train", 1, job.shard_tokens);
  ShardWriter val(target.scratch(), job.name + "_val", 0, job.shard_tokens);
  const Totals totals = encode_all(inputs, rules, tokenizer, job.threads, train, val);
  check_enough(job, totals, train, val);
  train.finish();
  val.finish();
  for (const TokenizerFile& file : loaded.files) {
    const std::string_view bytes = file.bytes;
    write_synced(target.scratch() / file.name, {&bytes, 1});
  }
  stop_if_told();
  target.publish();
  std::printf(
      "prepared %s: documents=%llu bytes=%llu train_tokens=%llu val_tokens=%llu train_shards=%d "
      "val_shards=%d "
      "vocab_size=%d seconds=%.1f\n",
      printable(job.directory.string()).c_str(), static_cast<unsigned long long>(totals.documents),
      static_cast<unsigned long long>(inputs.bytes), static_cast<unsigned long long>(train.tokens()),
      static_cast<unsigned long long>(val.tokens()), train.shards(), val.shards(), tokenizer.size(),
      std::chrono::duration<double>(Clock::now() - began).count());
}

}  // namespace

int prepare_main(const std::vector<std::string>& arguments) {
  constexpr std::size_t kBeforeTexts = 9;
  if (arguments.size() <= kBeforeTexts) return kExitUsage;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, note_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is then a write error
  try {
    prepare({.directory = arguments[0],
             .tokenizer = arguments[1],
             .eos_token = arguments[2],
             .name = arguments[3],
             .shard_tokens = std::strtoull(arguments[4].c_str(), nullptr, 10),
             .val_fraction = std::strtod(arguments[5].c_str(), nullptr),
             .json_field = arguments[6],
             .pattern = arguments[7],
             .threads = std::atoi(arguments[8].c_str()),
             .texts = {arguments.begin() + kBeforeTexts, arguments.end()}});
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  } catch (const Stopped& stopped) {
    std::fputs("dtrun: stopped; nothing is left of it\n", stderr);
    return exit_code_of_signal(stopped.signal);
  }
}

}  // namespace dtrun::worker
