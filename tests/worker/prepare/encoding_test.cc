// From files to shards, without the program around it.
#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/data/tokens.h"
#include "worker/prepare/encoding_team.h"
#include "worker/prepare/progress_line.h"
#include "worker/prepare/shard_writer.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker::encoding_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::read_text;
using dtrun::test::write_text;

using Ids = std::vector<std::int32_t>;

const Tokenizer& fixture() {
  static const auto loaded = load_tokenizer(DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture");
  return *loaded.value().tokenizer;
}
const std::int32_t kEos = *fixture().id_of(kEndOfText);

Ids encoded(const std::string& text) {
  Ids ids;
  Encoder(fixture()).encode(text, true, ids);
  return ids;
}

// Many megabytes, with characters of all lengths and long stretches without a space.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (std::uint32_t random = 1; text.size() < bytes;) {
    random = random * 1664525 + 1013904223;
    static constexpr const char* kParts[] = {
        "the ", "of course", ", ",   "\n\n",    " 1,234",     "\u00e9t\u00e9 ", "\u4e2d\u6587\u5b57",
        "'ll ", "it's",      "    ", "-------", "\U0001f600", "<|endoftext|>",  "\u3002"};
    text += kParts[random >> 8 & 7];
    text += kParts[(random >> 16) % 14];
  }
  return text;
}

struct Prepared {
  Ids train, val;
  std::uint64_t documents = 0;
  std::string fault;
};

Prepared prepared(const std::vector<std::string>& paths, double val_fraction, int threads = 1) {
  Prepared all;
  const auto inputs = find_inputs(paths, "*", val_fraction);
  if (!inputs.ok()) return {.train = {}, .val = {}, .documents = 0, .fault = inputs.status().message()};
  const EncodingRules rules{.json_field = "text",
                            .end_of_text = kEos,
                            .val_fraction = val_fraction,
                            .cut_documents = inputs.value().cut_documents};
  UnitReader reader(inputs.value(), val_fraction, fixture());
  EncodingTeam team(inputs.value(), rules, fixture(), threads);
  for (bool more = true; more || !team.is_empty();) {
    if (more && team.has_room()) {
      auto unit = reader.next();
      if (!unit.ok()) {
        all.fault = unit.status().message();
        return all;
      }
      more = unit.value().has_value();
      if (more) team.hand_in(*std::move(unit).value());
      continue;
    }
    auto result = team.take_out(std::chrono::seconds(1));
    if (!result) continue;
    if (!result->ok()) {
      all.fault = result->status().message();
      return all;
    }
    const UnitTokens& tokens = result->value();
    all.train.insert(all.train.end(), tokens.train.begin(), tokens.train.end());
    all.val.insert(all.val.end(), tokens.val.begin(), tokens.val.end());
    all.documents += tokens.documents;
  }
  return all;
}

TEST_CASE("a text of several pieces has the tokens of the whole, with any number of threads") {
  const Folder folder;
  const std::string text = long_text(5 << 19);
  write_text(folder / "a.txt", text);
  Ids wanted = encoded(text);
  wanted.insert(wanted.begin(), kEos);
  for (const int threads : {1, 7}) {
    const Prepared all = prepared({(folder / "a.txt").string()}, 0, threads);
    CHECK(all.fault == "");
    CHECK(all.train == wanted);
    CHECK(all.val.empty());
    CHECK(all.documents == 1);
  }
}

TEST_CASE("the end of a single document is for validation, from a word's end on, with its own beginning") {
  const Folder folder;
  const std::string text = long_text(3 << 19);
  write_text(folder / "a.txt", text);
  const Prepared all = prepared({(folder / "a.txt").string()}, 0.1);
  REQUIRE(all.fault == "");
  REQUIRE(all.val.front() == kEos);
  CHECK(all.documents == 1);
  Ids both = all.train;
  both.insert(both.end(), all.val.begin() + 1, all.val.end());
  Ids wanted = encoded(text);
  wanted.insert(wanted.begin(), kEos);
  CHECK(both == wanted);
  std::size_t bytes = 0;
  for (const std::int32_t id : all.val) bytes += fixture().bytes_of(id).size();
  CHECK(std::abs(static_cast<double>(bytes) / static_cast<double>(text.size()) - 0.1) < 0.001);
}

TEST_CASE("of many documents every so many-th is for validation, of files and lines alike") {
  const Folder folder;
  std::string lines;
  Ids train, val;
  for (int i = 0; i < 40; ++i) {
    const std::string word = "document number " + std::to_string(i) + " \u00e9";
    Ids& ids = i % 10 == 9 ? val : train;
    ids.push_back(kEos);
    const Ids of_word = encoded(word);
    ids.insert(ids.end(), of_word.begin(), of_word.end());
    if (i < 20)
      lines += "{\"id\": " + std::to_string(i) + ", \"text\": \"" + word + "\"}" +
               (i == 19 ? ""
                : i % 3 ? "\n"
                        : "\r\n");
    else
      write_text(folder / ("b" + std::to_string(i) + ".txt"), word);
  }
  write_text(folder / "a.jsonl", lines);
  write_text(folder / "b0_empty.txt", "");
  const Prepared all = prepared({folder.path().string()}, 0.1, 2);
  CHECK(all.fault == "");
  CHECK(all.documents == 40);
  CHECK(all.train == train);
  CHECK(all.val == val);
  int chosen = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) chosen += is_for_validation(i, 0.013) ? 1 : 0;
  CHECK(chosen == 1300);
  CHECK_FALSE(is_for_validation(7, 0));
}

TEST_CASE("lines without text are no documents, and few lines are cut each") {
  const Folder folder;
  write_text(folder / "a.jsonl",
             "{\"text\": \"one two three four five six seven eight nine ten\"}\n\n  \n{\"text\": \"\"}\n");
  const Prepared all = prepared({(folder / "a.jsonl").string()}, 0.2);
  CHECK(all.fault == "");
  CHECK(all.documents == 1);
  Ids wanted = encoded(" nine ten");
  wanted.insert(wanted.begin(), kEos);
  CHECK(all.val == wanted);
}

TEST_CASE("numbers that JSON or a double lacks are no fault where nobody reads them") {
  const Folder folder;
  write_text(folder / "a.jsonl",
             "{\"score\": NaN, \"text\": \"one NaN, \\\"-Infinity\\\" 1e400\", \"a\": [Infinity,-Infinity, "
             "1e400, -1e999]}\n"
             "{\"text\":\"two\",\"id\":-1e400}\n");
  const Prepared all = prepared({(folder / "a.jsonl").string()}, 0);
  CHECK(all.fault == "");
  CHECK(all.documents == 2);
  Ids wanted = encoded("one NaN, \"-Infinity\" 1e400");
  wanted.insert(wanted.begin(), kEos);
  wanted.push_back(kEos);
  const Ids two = encoded("two");
  wanted.insert(wanted.end(), two.begin(), two.end());
  CHECK(all.train == wanted);
}

TEST_CASE("what is no text is named with its place") {
  const Folder folder;
  const auto fault = [&](const char* name, const std::string& bytes) {
    write_text(folder / name, bytes);
    return prepared({(folder / name).string()}, 0).fault;
  };
  CHECK(contains(fault("latin1.txt", "caf\xe9 au lait"), "latin1.txt: byte 3 is no UTF-8; convert the file"));
  CHECK(contains(fault("far.txt", std::string(3000000, ' ') + "word \xff"),
                 "far.txt: byte 3,000,005 is no UTF-8"));
  CHECK(contains(fault("cut.txt", "caf\xc3"), "cut.txt: byte 3 is no UTF-8"));
  CHECK(contains(fault("spaces.txt", std::string((4 << 20) + 1, ' ') + "x"),
                 "from byte 0 on no word ends for 4,194,304 bytes"));
  CHECK(fault("long.txt", std::string((4 << 20) - 1, ' ') + "x") == "");
  CHECK(contains(fault("a.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\", \"id\": 1}\n"),
                 "a.jsonl: line 2: has no \"text\", which the text is in; it has body, id (--json_field)"));
  CHECK(contains(fault("b.jsonl", "{\"text\": 5}"), "b.jsonl: line 1: \"text\" is no string"));
  CHECK(contains(fault("c.jsonl", "\n\n[1]\n"), "c.jsonl: line 3: no JSON object"));
  CHECK(contains(fault("d.jsonl", "{\"text\": \"a\n"), "d.jsonl: line 1: no JSON: "));
  CHECK(contains(fault("e.txt", ""), "e.txt: is empty"));
  CHECK(contains(fault("f.jsonl.gz", "\x1f\x8b\x08\xff\xff"),
                 "f.jsonl.gz: is compressed with gzip; unpack it first"));
  CHECK(contains(fault("g.jsonl", "{\"text\": NaN}"), "g.jsonl: line 1: \"text\" is no string"));
  CHECK(contains(fault("h.jsonl", "{\"a\": Nan, \"text\": \"a\"}"), "h.jsonl: line 1: no JSON: "));
  CHECK(contains(fault("i.jsonl", "{\"a\": 1.2.3, \"text\": \"a\"}"), "i.jsonl: line 1: no JSON: "));
  CHECK(contains(prepared({(folder / "none").string()}, 0).fault, "none: cannot be read: No such file"));
}

TEST_CASE("lines that fill several units are counted on, and each is a document") {
  const Folder folder;
  std::string lines;
  Ids train, val;
  const Ids words = encoded("some more words");
  for (int i = 0; i < 60000; ++i) {
    lines += "{\"text\": \"some more words\", \"number\": " + std::to_string(i) + "}\n";
    Ids& ids = i % 100 == 99 ? val : train;
    ids.push_back(kEos);
    ids.insert(ids.end(), words.begin(), words.end());
  }
  REQUIRE(lines.size() > (2 << 20));
  write_text(folder / "a.jsonl", lines);
  const Prepared all = prepared({(folder / "a.jsonl").string()}, 0.01, 3);
  CHECK(all.fault == "");
  CHECK(all.documents == 60000);
  CHECK(all.train == train);
  CHECK(all.val == val);
  write_text(folder / "a.jsonl", lines + "no JSON\n" + lines);
  CHECK(
      contains(prepared({(folder / "a.jsonl").string()}, 0.01, 3).fault, "a.jsonl: line 60,001: no JSON: "));
}

TEST_CASE("shards have as many tokens as asked for, in llm.c's format") {
  const Folder folder;
  {
    ShardWriter writer(folder.path(), "x_train", 1, 4);
    writer.add(Ids{1, 2, 3});
    writer.add(Ids{4, 65535, 0, 7, 8, 9});
    writer.finish();
    CHECK(writer.tokens() == 9);
    CHECK(writer.shards() == 3);
  }
  const auto tokens_in = [&](const char* name) {
    const std::string bytes = read_text(folder / name);
    const auto layout =
        parse_token_header({reinterpret_cast<const std::uint8_t*>(bytes.data()), kTokenHeader}, bytes.size());
    REQUIRE_MESSAGE(layout.ok(), layout.status().message());
    Ids ids;
    for (std::size_t i = 0; i < layout.value().tokens; ++i) {
      const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data()) + layout.value().begin + 2 * i;
      ids.push_back(at[0] | at[1] << 8);
    }
    return ids;
  };
  CHECK(tokens_in("x_train_000001.bin") == Ids{1, 2, 3, 4});
  CHECK(tokens_in("x_train_000002.bin") == Ids{65535, 0, 7, 8});
  CHECK(tokens_in("x_train_000003.bin") == Ids{9});
  CHECK_FALSE(std::filesystem::exists(folder / "x_train_000004.bin"));
}

TEST_CASE("progress says how much is done, how fast, and how long it takes") {
  CHECK(
      progress_line({.bytes = 412'000'000, .all_bytes = 1'100'000'000, .tokens = 98'000'000, .seconds = 8}) ==
      " 37 %  412 MB of 1.1 GB, 98,000,000 tokens, 52 MB/s, 14 s left");
  CHECK(progress_line({.bytes = 0, .all_bytes = 5000, .tokens = 0, .seconds = 3}) ==
        "  0 %  0.0 kB of 5.0 kB, 0 tokens");
  CHECK(
      contains(progress_line({.bytes = 1, .all_bytes = 8000, .tokens = 1, .seconds = 1}), "2 h 13 min left"));
}

}  // namespace
}  // namespace dtrun::worker::encoding_test
