#include "worker/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/tokenizer/cases.h"
#include "worker/tokenizer/byte_alphabet.h"

namespace dtrun::worker::tokenizer_test {
namespace {

using dtrun::test::Folder;
using dtrun::test::write_text;

const std::filesystem::path kFixture = DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture";

using Ids = std::vector<std::int32_t>;

// The 256 bytes, and tokens behind them.
TokenizerSpec spec_with(std::initializer_list<const char*> tokens, std::vector<Merge> merges) {
  TokenizerSpec spec;
  spec.merges = std::move(merges);
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* token : tokens) spec.tokens.emplace_back(token);
  return spec;
}

TEST_CASE("a committed tokenizer gives the ids that tokenizers 0.23 computed, whole and in parts") {
  CHECK(check_cases(kFixture) == 80);
}

TEST_CASE("with added tokens of both rounds the ids are those of tokenizers 0.23, whole and in parts") {
  const Folder folder;
  auto json = nlohmann::json::parse(test::read_text(kFixture / "tokenizer.json"));
  json["added_tokens"] = nlohmann::json::parse(test::read_text(kFixture / "added/added_tokens.json"));
  write_text(folder / "tokenizer.json", json.dump());
  std::filesystem::copy(kFixture / "added/cases.jsonl", folder / "cases.jsonl");
  CHECK(check_cases(folder.path()) == 17);
}

TEST_CASE("GPT-2's two files are the same tokenizer as its tokenizer.json") {
  const Folder folder;
  const auto json = nlohmann::json::parse(test::read_text(kFixture / "tokenizer.json"));
  write_text(folder / "vocab.json", json["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const auto& pair : json["model"]["merges"])
    merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\r\n";
  write_text(folder / "merges.txt", merges + "\n");
  std::filesystem::copy(kFixture / "cases.jsonl", folder / "cases.jsonl");
  CHECK(check_cases(folder.path()) == 80);
  const auto by_file = load_tokenizer(folder / "vocab.json");
  REQUIRE(by_file.ok());
  CHECK(by_file.value().files.size() == 2);
  CHECK(by_file.value().files == tokenizer_files_in(folder.path()));
}

TEST_CASE(
    "the first of several merges is done first, of equal ones the left one, and long words as short ones") {
  const Tokenizer tokenizer(spec_with({"aa", "ab", "aab", "aaaa"},
                                      {{'a', 'b', 257}, {'a', 'a', 256}, {'a', 257, 258}, {256, 256, 259}}));
  Encoder encoder(tokenizer);
  CHECK(ids_of(encoder, "aab") == Ids{258});
  CHECK(ids_of(encoder, "aaa") == Ids{256, 'a'});
  CHECK(ids_of(encoder, "aaaaab") == Ids{259, 257});
  for (const int length : {47, 48, 49, 50, 1000}) {
    CAPTURE(length);
    Ids wanted(static_cast<std::size_t>(length / 4), 259);
    if (length % 4 >= 2) wanted.push_back(256);
    if (length % 2 == 1) wanted.push_back('a');
    CHECK(ids_of(encoder, std::string(static_cast<std::size_t>(length), 'a')) == wanted);
  }
}

// One merge after the other: the first in the table, of equal ones the left one.
Ids merged_plainly(Ids ids, const MergeTable& table) {
  for (;;) {
    std::size_t best = ids.size();
    std::int32_t rank = MergeTable::kNever;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const std::int32_t here = table.find(ids[i], ids[i + 1]).rank;
      if (here < rank) rank = here, best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = table.find(ids[best], ids[best + 1]).result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST_CASE("words of any length are merged as the plain rule says, by any table") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // Merges in any order: a token's parts may be merged after it.
    std::vector<Merge> merges;
    for (std::int32_t result = 2; result < 60; ++result)
      merges.push_back({static_cast<std::int32_t>(random() % result),
                        static_cast<std::int32_t>(random() % result), result});
    std::shuffle(merges.begin(), merges.end(), random);
    const MergeTable table(merges);
    Merger merger(table);
    Ids ids(1 + random() % 200);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 2);
    const Ids wanted = merged_plainly(ids, table);
    merger.merge(ids);
    REQUIRE(ids == wanted);
  }
}

TEST_CASE("words of all lengths are remembered and found again") {
  const auto loaded = load_tokenizer(kFixture);
  REQUIRE(loaded.ok());
  Encoder often(*loaded.value().tokenizer);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t length = 1; length < 40; ++length) {
      // They begin with the same bytes, and a cached word is padded with zeros.
      for (const std::string& word : {std::string(length, 'q'), std::string(length, 'q') + "a",
                                      std::string(length, 'q') + "b", std::string(length, '\0')}) {
        Encoder once(*loaded.value().tokenizer);
        const Ids ids = ids_of(often, word);
        REQUIRE(ids == ids_of(once, word));
        REQUIRE(decoded(*loaded.value().tokenizer, ids) == word);
      }
    }
  }
}

TEST_CASE("a word of 300,000 letters takes no minutes") {
  const auto loaded = load_tokenizer(kFixture);
  REQUIRE(loaded.ok());
  Encoder encoder(*loaded.value().tokenizer);
  for (const std::string part : {"ab", " ", "-", "the"}) {
    std::string text;
    while (text.size() < 300000) text += part;
    const std::clock_t began = std::clock();  // of this process, since others may be at work
    const Ids ids = ids_of(encoder, text);
    CHECK(decoded(*loaded.value().tokenizer, ids) == text);
    // Quadratic time would be minutes.
    CHECK((std::clock() - began) / CLOCKS_PER_SEC < 20);
  }
}

TEST_CASE("ignore_merges takes a word that is a token as it is") {
  TokenizerSpec spec = spec_with({"ab", "abc"}, {{'a', 'b', 256}});
  CHECK([&] {
    const Tokenizer tokenizer(spec);
    Encoder encoder(tokenizer);
    return ids_of(encoder, "abc");
  }() == Ids{256, 'c'});
  spec.ignore_merges = true;
  const Tokenizer tokenizer(spec);
  Encoder encoder(tokenizer);
  CHECK(ids_of(encoder, "abc") == Ids{257});
}

TEST_CASE("added tokens: the longest counts, they are no words, and no text is cut within one") {
  TokenizerSpec spec = spec_with({"<a", "<a b>"}, {});
  spec.added = {{.content = "<a", .id = 256}, {.content = "<a b>", .id = 257}};
  const Tokenizer tokenizer(spec);
  Encoder encoder(tokenizer);
  CHECK(ids_of(encoder, "x<a b>y<a b") == Ids{'x', 257, 'y', 256, ' ', 'b'});
  CHECK(tokenizer.size() == 258);
  CHECK(tokenizer.id_of("<a b>") == 257);
  CHECK(tokenizer.bytes_of(257) == "<a b>");
  CHECK(tokenizer.bytes_of(258).empty());
  CHECK(tokenizer.bytes_of(-1).empty());
  const std::string text = "one <a b> two.";
  CHECK(encoder.cut(text, 0) == 3);
  CHECK(encoder.cut(text, 4) == 13);  // neither within "<a b>" nor behind "<a"
  CHECK(encoder.cut(text, 13) == 13);
  CHECK_FALSE(encoder.cut(text, 14));
  CHECK(encoder.cut("x <a two.", 2) == 8);  // the text behind an added token may get a space
  CHECK(encoder.cut("\u4e2d\u6587 x", 1) == 6);
  CHECK(encoder.cut("\u4e2d\u6587 x", 4) == 6);
}

TEST_CASE("a space goes before a text that has none, and before what follows an added token") {
  TokenizerSpec spec = spec_with({"<e>", " a"}, {{' ', 'a', 257}});
  spec.added = {{.content = "<e>", .id = 256}};
  spec.add_prefix_space = true;
  const Tokenizer tokenizer(spec);
  Encoder encoder(tokenizer);
  CHECK(ids_of(encoder, "a<e>a") == Ids{257, 256, 257});
  CHECK(ids_of(encoder, " a") == Ids{257});
  Ids part;
  encoder.encode("a", false, part);
  CHECK(part == Ids{'a'});
}

TEST_CASE("each byte has a letter, and only the alphabet's letters are bytes") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(bytes_of_letters(letters_of_bytes(all)) == all);
  CHECK(letters_of_bytes(" \n!") == "\u0120\u010a!");
  CHECK(letters_of_bytes("\xad\xff") == "\u0143\u00ff");
  for (const char* other : {" ", "\n", "\u0144", "\u00ad", "\u2581", "a\xc4", "\xc4z", "\xc1\xa1", "\x80"})
    CHECK_FALSE(bytes_of_letters(other));
}

}  // namespace
}  // namespace dtrun::worker::tokenizer_test
