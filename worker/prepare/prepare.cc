#include "worker/prepare/prepare.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
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

std::atomic<int> g_signal{0};

void note_signal(int signal) { g_signal = signal; }

// Thrown to end the preparation after a signal, so that its files are removed.
struct StoppedBySignal {
  int signal;
};

void stop_if_told() {
  if (const int signal = g_signal) throw StoppedBySignal{signal};
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

std::int32_t end_of_text(const Tokenizer& tokenizer, const PrepareRequest& request) {
  if (tokenizer.size() > kMostIds) {
    throw WorkerError(kExitNoInput,
                      request.tokenizer + ": has " +
                          with_thousands(static_cast<std::uint64_t>(tokenizer.size())) +
                          " tokens, and the shards' numbers of 16 bits go up to 65,536; use a tokenizer with "
                          "fewer, or train on the text itself (data.type \"text\" with data.tokenizer)");
  }
  if (const auto id = tokenizer.id_of(request.eos_token)) return *id;
  std::string special;
  for (const AddedToken& added : tokenizer.spec().added) {
    if (special.size() < 200) special += (special.empty() ? "" : ", ") + printable(added.content);
  }
  throw WorkerError(kExitNoInput, request.tokenizer + ": has no token \"" + request.eos_token +
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
      auto unit = value_or_throw(reader.next());
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
    const UnitTokens tokens = value_or_throw(*std::move(result));
    train.add(tokens.train);
    val.add(tokens.val);
    totals.documents += tokens.documents;
    totals.bytes += sizes.front();
    sizes.pop_front();
  }
  return totals;
}

void check_enough(const PrepareRequest& request, const Totals& totals, const ShardWriter& train,
                  const ShardWriter& val) {
  if (totals.documents == 0)
    throw WorkerError(kExitNoInput,
                      request.words.front() + ": no document has any text; name files with text");
  if (train.tokens() == 0)
    throw WorkerError(kExitNoInput, "nothing is left to train on; lower --val_fraction or name more text");
  if (val.tokens() == 0 && request.val_fraction > 0)
    throw WorkerError(
        kExitNoInput,
        "the text is too short for a part of it to be for validation; raise --val_fraction or name "
        "more text");
}

void prepare(const PrepareRequest& request) {
  const auto began = Clock::now();
  const LoadedTokenizer loaded = value_or_throw(load_tokenizer(request.tokenizer));
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const std::int32_t eos = end_of_text(tokenizer, request);
  const Inputs inputs = value_or_throw(find_inputs(request.words, request.files, request.val_fraction));
  TargetDirectory target(request.directory);
  const EncodingRules rules{.json_field = request.json_field,
                            .end_of_text = eos,
                            .val_fraction = request.val_fraction,
                            .cut_documents = inputs.cut_documents};
  // The shards are numbered as llm.c does.
  ShardWriter train(target.scratch(), request.name + "_train", 1, request.shard_tokens);
  ShardWriter val(target.scratch(), request.name + "_val", 0, request.shard_tokens);
  const Totals totals = encode_all(inputs, rules, tokenizer, request.threads, train, val);
  check_enough(request, totals, train, val);
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
      printable(request.directory).c_str(), static_cast<unsigned long long>(totals.documents),
      static_cast<unsigned long long>(inputs.bytes), static_cast<unsigned long long>(train.tokens()),
      static_cast<unsigned long long>(val.tokens()), train.shards(), val.shards(), tokenizer.size(),
      std::chrono::duration<double>(Clock::now() - began).count());
}

}  // namespace

int prepare_main(const PrepareRequest& request) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, note_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is then a write error
  try {
    prepare(request);
    return std::fflush(stdout) == 0 ? kExitOk : kExitIo;
  } catch (const WorkerError& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.what());
    return error.exit_code();
  } catch (const StoppedBySignal& stopped) {
    std::fputs("dtrun: stopped; nothing is left of it\n", stderr);
    return exit_code_of_signal(stopped.signal);
  }
}

}  // namespace dtrun::worker
