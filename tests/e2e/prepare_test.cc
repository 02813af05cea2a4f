// Text becomes shards, shards a model, and the model writes text; and the errors on the way.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/training.h"
#include "tests/support/skip.h"

namespace dtrun::prepare_test {

using namespace dtrun::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kTokenizer = DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture/tokenizer.json";
const std::string kDocs = DTRUN_SOURCE_DIR "/docs";

std::vector<std::string> preparing(const fs::path& directory, const std::vector<std::string>& words) {
  std::vector<std::string> argv{kDtrun, "prepare", directory.string(), "--tokenizer", kTokenizer};
  argv.insert(argv.end(), words.begin(), words.end());
  return argv;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

fs::path large_text(const Folder& folder, std::size_t megabytes) {
  std::string text;
  for (const auto& file : fs::directory_iterator(kDocs)) text += read_text(file.path());
  std::string large;
  while (large.size() < megabytes << 20) large += text;
  write_text(folder / "large.txt", large);
  return folder / "large.txt";
}

void write_job(const Folder& folder, const Json& data, int vocab_size, const char* name = "job.json") {
  const Json config{{"output_dir", (folder / "out").string()},
                    {"model",
                     {{"type", "gpt2"},
                      {"n_layer", 2},
                      {"n_head", 2},
                      {"n_embd", 32},
                      {"n_positions", 32},
                      {"vocab_size", vocab_size}}},
                    {"data", data},
                    {"train",
                     {{"max_steps", 30},
                      {"global_batch_size", 16},
                      {"optim", "adamw"},
                      {"learning_rate", 0.01},
                      {"save_steps", 10},
                      {"eval_steps", 0}}}};
  write_text(folder / name, config.dump());
}

}  // namespace

TEST_CASE("prepare, train, sample and export: text comes out as text went in") {
  const Folder folder;
  const Ended prepared = run(preparing(
      folder / "data/docs", {kDocs, "--shard_tokens", "20000", "--val_fraction", "0.1", "--files", "*.md"}));
  REQUIRE_MESSAGE(prepared.exit_code == 0, prepared.err);
  CHECK(prepared.err == "");
  CHECK(prepared.out.starts_with("prepared " + (folder / "data/docs").string() + ": documents="));
  CHECK(contains(prepared.out, " vocab_size=857 seconds="));
  const std::vector<std::string> names = names_in(folder / "data/docs");
  CHECK(names.front() == "tokenizer.json");
  CHECK(std::count(names.begin(), names.end(), "tokens_train_000002.bin") == 1);
  CHECK(std::count(names.begin(), names.end(), "tokens_val_000000.bin") == 1);
  CHECK(read_text(folder / "data/docs/tokenizer.json") == read_text(kTokenizer));
  CHECK(names_in(folder / "data") == std::vector<std::string>{"docs"});
  // As many threads as one likes.
  REQUIRE(run(preparing(folder / "again", {kDocs, "--shard_tokens", "20000", "--val_fraction", "0.1",
                                           "--files", "*.md", "--threads", "3"}))
              .exit_code == 0);
  for (const std::string& name : names)
    CHECK_MESSAGE(read_text(folder / "again" / name) == read_text(folder / "data/docs" / name), name);

  const Json tokens{{"type", "tokens"},
                    {"path", (folder / "data/docs").string()},
                    {"sequence_length", 32},
                    {"vocab_size", 864}};
  write_job(folder, tokens, 896);
  const std::vector<std::string> training{kDtrun, "--standalone", "--nproc_per_node", "2",
                                          (folder / "job.json").string()};
  const Ended trained = run(training);
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const auto sample = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {kDtrun, "sample", (folder / "out").string()});
    return run(words);
  };
  const Ended text =
      sample({"--prompt", "Der große Wörtersee", "--max_new_tokens", "40", "--temperature", "2"});
  CHECK_MESSAGE(text.exit_code == 0, text.err);
  CHECK(text.out.starts_with("Der große Wörtersee"));
  CHECK(text.out.size() > 40);
  CHECK(Json(text.out).dump().size() > 0);  // throws where it is no UTF-8
  CHECK(sample({"--max_new_tokens", "1"}).out.starts_with("<|endoftext|>"));
  CHECK(sample({"--prompt", "caf\xe9"}).exit_code == 64);
  const Ended checkpoint = run({kDtrun, "sample", (folder / "out/checkpoints/step-00000020").string(),
                                "--prompt", "The ", "--max_new_tokens", "3"});
  CHECK_MESSAGE(checkpoint.out.starts_with("The "), checkpoint.err);

  const Ended exported = run({kDtrun, "export", (folder / "out").string(), (folder / "hub").string()});
  CHECK_MESSAGE(contains(exported.out,
                         "model.safetensors, tokenizer.json, tokenizer_config.json and config.json, from "),
                exported.err);
  CHECK(read_text(folder / "hub/tokenizer.json") == read_text(kTokenizer));
  CHECK(Json::parse(read_text(folder / "hub/config.json"))["eos_token_id"] == 0);
  CHECK(Json::parse(read_text(folder / "hub/tokenizer_config.json"))["model_max_length"] == 32);

  // Another tokenizer later: these numbers would mean other text.
  Json other = Json::parse(read_text(kTokenizer));
  other["model"]["merges"].erase(5);
  write_text(folder / "data/docs/tokenizer.json", other.dump());
  const Ended changed = run({kDtrun, "--standalone", (folder / "job.json").string(), "train.max_steps=40"});
  CHECK(changed.exit_code == 78);
  CHECK_MESSAGE(contains(changed.err, "the data's tokenizer is not the one that this run began with"),
                changed.err);
  fs::copy(kTokenizer, folder / "data/docs/tokenizer.json", fs::copy_options::overwrite_existing);
  CHECK(run({kDtrun, "--standalone", (folder / "job.json").string(), "train.max_steps=40"}).exit_code == 0);
  const Ended small = run({kDtrun, "--standalone", (folder / "job.json").string(), "data.vocab_size=800"});
  CHECK(small.exit_code == 78);
  CHECK_MESSAGE(contains(small.err, "/data/vocab_size: 800, but the tokenizer beside the tokens"), small.err);
}

TEST_CASE("text with a tokenizer trains without being prepared") {
  const Folder folder;
  write_job(folder,
            {{"type", "text"},
             {"path", kDocs},
             {"files", "*.md"},
             {"sequence_length", 32},
             {"tokenizer", kTokenizer}},
            0);
  const Ended trained =
      run({kDtrun, "--standalone", "--nproc_per_node", "2", (folder / "job.json").string()});
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const Ended text =
      run({kDtrun, "sample", (folder / "out").string(), "--prompt", "The ", "--max_new_tokens", "9"});
  CHECK_MESSAGE(text.out.starts_with("The "), text.err);
  // Its bytes instead would be other samples.
  write_job(folder, {{"type", "text"}, {"path", kDocs}, {"files", "*.md"}, {"sequence_length", 32}}, 857,
            "bytes.json");
  const Ended bytes = run({kDtrun, "--standalone", (folder / "bytes.json").string(), "train.max_steps=40",
                           "model.vocab_size=857"});
  CHECK(bytes.exit_code == 78);
  CHECK_MESSAGE(contains(bytes.err, "/data/tokenizer"), bytes.err);
}

TEST_CASE(
    "a directory that holds something, garbage, and a wrong command line are refused, and leave nothing") {
  const Folder folder;
  write_text(folder / "empty.txt", "");
  write_text(folder / "garbage", std::string("\x1f\x8c\x08\x00garbage\xff", 12));
  write_text(folder / "packed.jsonl.gz", std::string("\x1f\x8b\x08\x00garbage\xff", 12));
  write_text(folder / "short.txt", "word");
  fs::create_directories(folder / "full");
  write_text(folder / "full/file", "");
  Json many = Json::parse(read_text(kTokenizer));
  for (int id = 857; id <= 65536; ++id) many["model"]["vocab"]["x" + std::to_string(id)] = id;
  write_text(folder / "many.json", many.dump());
  many["normalizer"] = {{"type", "NFC"}};
  write_text(folder / "nfc.json", many.dump());
  const auto refused = [&](int code, const std::string& says, std::vector<std::string> words,
                           const char* directory = "data") {
    words.insert(words.begin(), {kDtrun, "prepare", (folder / directory).string()});
    const Ended ended = run(words);
    CHECK(ended.exit_code == code);
    CHECK(ended.out == "");
    CHECK_MESSAGE(contains(ended.err, says), ended.err);
    CHECK_FALSE(fs::exists(folder / "data"));
    CHECK_FALSE(fs::exists(folder / ".data.prepare"));
  };
  const auto in = [&](const char* name) { return (folder / name).string(); };
  refused(64, "dtrun prepare needs --tokenizer PATH", {kDocs});
  refused(64, "dtrun prepare needs TEXT", {"--tokenizer", kTokenizer});
  refused(64, "has \"val\" in it, which tells what a file is for",
          {"--tokenizer", kTokenizer, kDocs, "--name", "oval"});
  refused(64, "--val_fraction=0.6: expected a number from 0 to 0.5",
          {"--tokenizer", kTokenizer, kDocs, "--val_fraction", "0.6"});
  refused(64, "--shard_tokens", {"--tokenizer", kTokenizer, kDocs, "--shard_tokens", "0"});
  refused(66, "empty.txt: is empty", {"--tokenizer", kTokenizer, in("empty.txt")});
  refused(66, "garbage: byte 1 is no UTF-8", {"--tokenizer", kTokenizer, in("garbage")});
  refused(66, "packed.jsonl.gz: is compressed with gzip; unpack it first (gunzip)",
          {"--tokenizer", kTokenizer, in("packed.jsonl.gz")});
  refused(66, "garbage: ", {"--tokenizer", in("garbage"), kDocs});
  refused(66, "nothing: cannot be read: No such file", {"--tokenizer", kTokenizer, kDocs, in("nothing")});
  refused(66, "has no files \"*.none\"", {"--tokenizer", kTokenizer, kDocs, "--files", "*.none"});
  refused(66, "the text is too short for a part of it to be for validation",
          {"--tokenizer", kTokenizer, in("short.txt")});
  refused(66, "has 65,537 tokens, and the shards' numbers of 16 bits go up to 65,536",
          {"--tokenizer", in("many.json"), kDocs});
  refused(66, "nfc.json: a normalizer of the type \"NFC\" is not supported",
          {"--tokenizer", in("nfc.json"), kDocs});
  refused(66,
          "has no token \"<s>\" to put before each document; name one with --eos_token (its special tokens: "
          "<|endoftext|>)",
          {"--tokenizer", kTokenizer, kDocs, "--eos_token", "<s>"});
  refused(73, "full holds something already (file); choose another directory, or remove it",
          {"--tokenizer", kTokenizer, kDocs}, "full");
  refused(73, "short.txt is no directory", {"--tokenizer", kTokenizer, kDocs}, "short.txt");
}

TEST_CASE("prepare that is stopped or killed leaves nothing under the name, and the next one clears up") {
  const Folder folder;
  const std::string text = large_text(folder, 200).string();  // it is at work for some seconds
  const fs::path scratch = folder / ".data.prepare";
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    Process at_work(preparing(folder / "data", {text}));
    REQUIRE(eventually([&] {
      std::error_code error;
      return fs::file_size(scratch / "tokens_train_000001.bin", error) > 1000000 && !error;
    }));
    // Two at once into the same directory.
    const Ended second = run(preparing(folder / "data", {kDocs, "--files", "*.md"}));
    CHECK(second.exit_code == 73);
    CHECK_MESSAGE(contains(second.err, "is being prepared by another dtrun prepare"), second.err);
    CHECK(fs::exists(scratch / "tokens_train_000001.bin"));
    at_work.signal(signal);
    CHECK(at_work.end().exit_code == 128 + signal);
    CHECK_FALSE(fs::exists(folder / "data"));
    CHECK(fs::exists(scratch) == (signal == SIGKILL));
  }
  const Ended next = run(preparing(folder / "data", {kDocs, "--files", "*.md"}));
  CHECK_MESSAGE(next.exit_code == 0, next.err);
  CHECK_FALSE(fs::exists(scratch));
  const Ended again = run(preparing(folder / "data", {kDocs, "--files", "*.md"}));
  CHECK(again.exit_code == 73);
  CHECK_MESSAGE(contains(again.err, "holds something already"), again.err);
}

TEST_CASE("memory does not grow with the text") {
  const Folder folder;
  const std::string text = large_text(folder, 80).string();
  Process limited({"bash", "-c", "ulimit -v 400000; exec \"$@\"", "bash", kDtrun, "prepare",
                   (folder / "data").string(), "--tokenizer", kTokenizer, "--threads", "2", text, text, text,
                   text, text, text});
  CHECK_MESSAGE(limited.wait(std::chrono::minutes(4)) == 0, limited.err());
}

TEST_CASE("no room is said, with what to do, and nothing is left") {
  const Folder folder;
  const Ended full = run({"bash", "-c", "ulimit -f 20; exec \"$@\"", "bash", kDtrun, "prepare",
                          (folder / "data").string(), "--tokenizer", kTokenizer, kDocs, "--files", "*.md"});
  CHECK(full.exit_code == 74);
  CHECK_MESSAGE(contains(full.err, "File too large; free some space or choose another directory"), full.err);
  CHECK(names_in(folder.path()).empty());
}

TEST_SUITE("root") {
  TEST_CASE("who may not read the text or write the directory is told so") {
    if (geteuid() != 0) return skip("needs root, to be somebody else");
    const Folder folder;
    write_text(folder / "secret.txt", "words");
    fs::permissions(folder / "secret.txt", fs::perms::owner_read);
    fs::permissions(folder.path(), fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write);
    const auto as_nobody = [&](const std::string& text) {
      return run({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", kDtrun, "prepare",
                  (folder / "data").string(), "--tokenizer", kTokenizer, text});
    };
    const Ended unreadable = as_nobody((folder / "secret.txt").string());
    CHECK(unreadable.exit_code == 66);
    CHECK_MESSAGE(contains(unreadable.err, "secret.txt: cannot be read: Permission denied"), unreadable.err);
    const Ended unwritable = as_nobody(kDocs);
    CHECK(unwritable.exit_code == 73);
    CHECK_MESSAGE(contains(unwritable.err, "Permission denied; choose another directory that can be written"),
                  unwritable.err);
  }
}

}  // namespace dtrun::prepare_test
