#include <doctest/doctest.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "worker/data/dataset_types.h"
#include "worker/data/input_file.h"
#include "worker/data/tokenized_text.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker::text_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;

DataConfig text_at(const std::filesystem::path& path, int length = 4, double test_fraction = 0.25) {
  return {.type = DataType::kText,
          .path = path.string(),
          .sequence_length = length,
          .test_fraction = test_fraction};
}

std::string letters(const std::vector<std::int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

// All tokens of a split, and the target of the last.
std::string whole(const Dataset& data) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  const Samples got = samples_of(data, all);
  return letters(got.tokens) + static_cast<char>(got.targets.back());
}

TEST_CASE("of the text of a shipped config that is not there the package is named that brings it") {
  const std::string here = check_fault_of(text_at("/usr/share/games/fortunes/no such file"));
  CHECK(contains(
      here, "cannot be read: No such file or directory; install the package fortunes, or check the path"));
  const Folder folder;
  const std::string elsewhere = check_fault_of(text_at(folder / "no such file"));
  CHECK(contains(elsewhere, "No such file or directory; check the path"));
}

TEST_CASE("each byte is a token, its target is the next one, and the end is for the test") {
  const Folder folder;
  write_text(folder / "a.txt", "abcdefghijklmnopqrst");
  const DataConfig config = text_at(folder / "a.txt");
  CHECK(check_fault_of(config) == "accepted");
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->spec() ==
        SampleSpec{.input = SampleSpec::Input::kTokens, .shape = {1, 1, 4}, .targets = 4, .classes = 256});
  CHECK(train->size() == 3);  // (15 - 1) / 4
  const Samples got = samples_of(*train, {2, 0});
  CHECK(letters(got.tokens) == "ijklabcd");
  CHECK(letters(got.targets) == "jklmbcde");
  CHECK(test->size() == 1);
  CHECK(whole(*test) == "pqrst");
}

TEST_CASE("a byte is its value, whatever the encoding") {
  const Folder folder;
  write_text(folder / "bytes", std::string("\xff\x00\x80\x7f\x01zzzzz", 10));
  CHECK(samples_of(*load_dataset(text_at(folder / "bytes", 4, 0.5), Split::kTrain), {0}).tokens ==
        std::vector<std::int32_t>{255, 0, 128, 127});
}

TEST_CASE("the files of a directory are one text, in name order, without hidden ones") {
  const Folder folder;
  std::filesystem::create_directories(folder / "b" / "deep");
  std::filesystem::create_directories(folder / ".git");
  write_text(folder / "c", "klmn");
  write_text(folder / "a", "abc");
  write_text(folder / "b" / "deep" / "x", "de");
  write_text(folder / "b" / "y", "fghij");
  write_text(folder / "b" / "empty", "");
  write_text(folder / ".hidden", "XXXX");
  write_text(folder / ".git" / "y", "XXXX");
  std::filesystem::create_directory_symlink(folder.path(), folder / "b" / "loop");
  std::filesystem::create_symlink(folder / "c", folder / "d");
  const DataConfig config = text_at(folder.path(), 3, 0.25);  // 18 bytes, 4 of them for the test
  CHECK(check_fault_of(config) == "accepted");
  CHECK(whole(*load_dataset(config, Split::kTrain)) == "abcdefghijklm");
  CHECK(whole(*load_dataset(config, Split::kTest)) == "klmn");
  // One sample over five files.
  CHECK(whole(*load_dataset(text_at(folder.path(), 12, 0.25), Split::kTrain)) == "abcdefghijklm");
}

TEST_CASE("more files than may be open are read as well") {
  const Folder folder;
  std::string all;
  for (int i = 0; i < static_cast<int>(kMostOpenFiles) + 50; ++i) {
    const char letter = static_cast<char>('a' + i % 26);
    write_text(folder / std::to_string(1000 + i), std::string(2, letter));
    all += std::string(2, letter);
  }
  const auto train = load_dataset(text_at(folder.path(), 1, 0.001), Split::kTrain);
  CHECK(whole(*train) == all.substr(0, all.size() - 1));
  const auto open_files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  CHECK(open_files < static_cast<int>(kMostOpenFiles) + 20);
}

TEST_CASE("a huge file is not read into memory") {
  const Folder folder;
  write_text(folder / "big", "");
  std::filesystem::resize_file(folder / "big", 100'000'000'000);  // a hole: zeros
  const auto train = load_dataset(text_at(folder / "big", 1024, 0.1), Split::kTrain);
  CHECK(train->size() == (90'000'000'000 - 1) / 1024);
  CHECK(samples_of(*train, {87'890'624}).tokens == std::vector<std::int32_t>(1024, 0));
  CHECK(contains(fault_of_both(text_at(folder / "big", 16)), "more than 4,294,967,295 samples; make"));
}

TEST_CASE("text that is missing, empty, too short or cannot be read is named with the way out") {
  const Folder folder;
  const auto path = folder.path();
  CHECK(
      contains(fault_of_both(text_at(path / "no")), "/no: cannot be read: No such file or directory; check"));
  CHECK(fault_of_both(text_at(path)) ==
        path.string() + ": has no files \"*\"; set data.path to a text, or a directory with texts");
  write_text(path / "a", "");
  CHECK(contains(fault_of_both(text_at(path)), ": is empty; set data.path to a text"));
  CHECK(contains(fault_of_both(text_at(path / "a")), "/a: is empty; set data.path to a text"));
  write_text(path / "a", "0123456789012345");
  CHECK(check_fault_of(text_at(path, 3)) == "accepted");
  CHECK(contains(check_fault_of(text_at(path, 4)),
                 ": has 4 bytes to test with, fewer than a sample of data.sequence_length 4 and the byte "
                 "after it"));
  CHECK(contains(fault_of_both(text_at(path, 12)), ": has 12 bytes to train on, fewer than a sample"));
  {
    const Unreadable nobody(path / "a");
    CHECK(contains(fault_of_both(text_at(path / "a")), "/a: cannot be read: Permission denied"));
  }
  {
    const Unreadable nobody(path);
    CHECK(contains(fault_of_both(text_at(path)), ": cannot be read: Permission denied"));
  }
  std::filesystem::create_symlink(path / "nothing", path / "b");
  CHECK(contains(fault_of_both(text_at(path, 3)), "/b: cannot be read: No such file"));
}

TEST_CASE("a text that is cut while the job trains is an error that names it") {
  const Folder folder;
  write_text(folder / "a", std::string(1000, 'x'));
  const auto train = load_dataset(text_at(folder / "a"), Split::kTrain);
  std::filesystem::resize_file(folder / "a", 100);
  CHECK(contains(input_fault([&] { samples_of(*train, {100}); }), "/a: cannot be read: it became shorter"));
}

// ---- with a tokenizer

const char* const kTokenizer = DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture";

std::string decoded_whole(const Dataset& data, const Tokenizer& tokenizer) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  const Samples got = samples_of(data, all);
  std::string text;
  for (const std::int32_t token : got.tokens) text += tokenizer.bytes_of(token);
  return text + std::string(tokenizer.bytes_of(got.targets.back()));
}

TEST_CASE("a tokenizer makes the text's tokens, and its end, from a word's end on, is for the test") {
  const Folder folder;
  std::filesystem::create_directories(folder / "texts");
  write_text(folder / "texts/a.txt", "One small step.");
  write_text(folder / "texts/b.txt", "");
  write_text(folder / "texts/c.txt", "It was the best of times, it was the worst of times");
  DataConfig config = text_at(folder / "texts", 1, 0.42);
  config.tokenizer = kTokenizer;
  CHECK(check_fault_of(config) == "accepted");
  const auto tokenizer = load_tokenizer(kTokenizer).value().tokenizer;
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->spec().classes == tokenizer->size());
  CHECK(train->spec() == test->spec());
  CHECK(decoded_whole(*train, *tokenizer) ==
        "<|endoftext|>One small step.<|endoftext|>It was the best of times");
  CHECK(decoded_whole(*test, *tokenizer) == ", it was the worst of times");
}

TEST_CASE("a tokenizer wants UTF-8, is named if it cannot be used, and more text than fits is refused") {
  const Folder folder;
  write_text(folder / "a.txt", "words and \xff words");
  DataConfig config = text_at(folder / "a.txt", 1, 0.1);
  config.tokenizer = kTokenizer;
  CHECK(contains(load_fault_of(config), "a.txt: byte 10 is no UTF-8"));
  config.tokenizer = (folder / "nothing").string();
  CHECK(contains(check_fault_of(config),
                 "data.tokenizer: " + (folder / "nothing").string() + ": cannot be read"));
  write_text(folder / "big.txt", "");
  std::filesystem::resize_file(folder / "big.txt", kLargestTokenizedText + 1);
  config = text_at(folder / "big.txt", 1, 0.1);
  config.tokenizer = kTokenizer;
  CHECK(contains(check_fault_of(config), "has 2,147,483,649 bytes, more than the 2,147,483,648"));
  CHECK(contains(check_fault_of(config), "`dtrun prepare`"));
}

}  // namespace
}  // namespace dtrun::worker::text_test
