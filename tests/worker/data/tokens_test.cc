#include "worker/data/tokens.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/worker/data/datasets.h"
#include "worker/data/data_tokenizer.h"
#include "worker/data/input_file.h"

namespace dtrun::worker::tokens_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;
using Ints = std::vector<std::int32_t>;

std::string little_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

// As nanoGPT writes them.
std::string plain(const Ints& tokens) {
  std::string file;
  for (const std::int32_t token : tokens) file += little_endian(static_cast<std::uint32_t>(token), 2);
  return file;
}

std::string header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  std::string text = little_endian(magic, 4) + little_endian(version, 4) + little_endian(count, 4);
  text.resize(kTokenHeader, '\0');
  return text;
}

// As llm.c writes them.
std::string shard(const Ints& tokens) {
  return header(20240520, 1, static_cast<std::uint32_t>(tokens.size())) + plain(tokens);
}

Ints range(int begin, int end) {
  Ints tokens;
  for (int token = begin; token < end; ++token) tokens.push_back(token);
  return tokens;
}

DataConfig tokens_at(const std::filesystem::path& path, int length = 4) {
  return {.type = DataType::kTokens, .path = path.string(), .sequence_length = length, .vocab_size = 1000};
}

TEST_CASE("a sample is the next tokens of a shard, and its targets are one further") {
  const Folder folder;
  write_text(folder / "fineweb_train_000001.bin", shard(range(0, 13)));     // 3 samples of 4, none left over
  write_text(folder / "fineweb_train_000002.bin", shard(range(100, 104)));  // too short for one
  write_text(folder / "fineweb_train_000003.bin", shard(range(200, 208)));  // one, and 3 tokens unused
  write_text(folder / "fineweb_val_000000.bin", shard(range(300, 305)));
  write_text(folder / "README.md", "not data");
  const DataConfig config = tokens_at(folder.path());
  CHECK(check_fault_of(config) == "accepted");
  const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
  CHECK(train->size() == 4);
  CHECK(train->spec() ==
        SampleSpec{.input = SampleSpec::Input::kTokens, .shape = {1, 1, 4}, .targets = 4, .classes = 1000});
  const Samples got = samples_of(*train, {2, 3, 0});
  CHECK(got.tokens == Ints{8, 9, 10, 11, 200, 201, 202, 203, 0, 1, 2, 3});
  CHECK(got.targets == Ints{9, 10, 11, 12, 201, 202, 203, 204, 1, 2, 3, 4});
  CHECK(test->size() == 1);
  CHECK(samples_of(*test, {0}).targets == Ints{301, 302, 303, 304});
}

TEST_CASE("files of nanoGPT have no header") {
  const Folder folder;
  write_text(folder / "train.bin", plain({7, 8, 999, 0, 1, 2}));
  write_text(folder / "val.bin", plain(range(20, 25)));
  const DataConfig config = tokens_at(folder.path());
  CHECK(check_fault_of(config) == "accepted");
  CHECK(samples_of(*load_dataset(config, Split::kTrain), {0}).tokens == Ints{7, 8, 999, 0});
  CHECK(samples_of(*load_dataset(config, Split::kTest), {0}).targets == Ints{21, 22, 23, 24});
}

TEST_CASE("the end of one file is for the test") {
  const Folder folder;
  for (const bool with_header : {false, true}) {
    const auto path = folder / "anything";
    write_text(path, with_header ? shard(range(0, 100)) : plain(range(0, 100)));
    DataConfig config = tokens_at(path);
    config.test_fraction = 0.2;
    CHECK(check_fault_of(config) == "accepted");
    const auto train = load_dataset(config, Split::kTrain), test = load_dataset(config, Split::kTest);
    CHECK(train->size() == 19);  // (80 - 1) / 4
    CHECK(test->size() == 4);
    CHECK(samples_of(*train, {18}).targets == Ints{73, 74, 75, 76});
    CHECK(samples_of(*test, {0, 3}).tokens == Ints{80, 81, 82, 83, 92, 93, 94, 95});
  }
}

TEST_CASE("a token that the vocabulary lacks is named with its file and place when it is read") {
  const Folder folder;
  Ints tokens = range(0, 13);
  tokens[9] = 1000;
  write_text(folder / "train.bin", shard(tokens));
  write_text(folder / "val.bin", shard(range(0, 13)));
  const DataConfig config = tokens_at(folder.path());
  const std::string fault =
      (folder / "train.bin").string() +
      ": token 1000 at position 9 is not below data.vocab_size 1000; set it to that of the file's "
      "tokenizer, or write the file again";
  CHECK(check_fault_of(config) == fault);  // it is among the first
  const auto train = load_dataset(config, Split::kTrain);
  CHECK(samples_of(*train, {0}).tokens == Ints{0, 1, 2, 3});
  CHECK(input_fault([&] { samples_of(*train, {2}); }) == fault);
  // The target behind the last token counts too.
  CHECK(input_fault([&] {
          DataConfig three = config;
          three.sequence_length = 9;
          samples_of(*load_dataset(three, Split::kTrain), {0});
        }) == fault);
}

TEST_CASE("in the test part of one file the place is the file's") {
  const Folder folder;
  Ints tokens = range(0, 100);
  tokens[95] = 2000;
  write_text(folder / "data.bin", plain(tokens));
  CHECK(contains(check_fault_of(tokens_at(folder / "data.bin")), "token 2000 at position 95 is not below"));
}

TEST_CASE("each kind of damaged file is named, with what is wrong and the way out") {
  struct Case {
    std::string content;
    const char* fault;
  };
  const std::string good = shard(range(0, 20));
  const Case cases[] = {
      {"", "is empty; write the file again"},
      {"xxxxxxx", "has 7 bytes, which is no whole number"},
      {good.substr(0, 7), "ends within its header, after 7 of 1,024 bytes: truncated"},
      {good.substr(0, 1000), "ends within its header, after 1,000 of 1,024 bytes: truncated"},
      {good.substr(0, good.size() - 1),
       "its header says 20 tokens, which is 1,064 bytes, but it has 1,063: truncated"},
      {good + "xx",
       "its header says 20 tokens, which is 1,064 bytes, but it has 1,066: not the file that its header "
       "says"},
      {header(20240520, 2, 20) + plain(range(0, 20)), "has version 2 of llm.c's format, where version 1"},
      {header(20240520, 1, 0xffffffff), "its header says 4,294,967,295 tokens, which is 8,589,935,614 bytes"},
      {header(20240520, 1, 0), "its header says 0 tokens"},
      {header(20240801, 7, 10) + std::string(40, 'x'),
       "begins with 20240801: llm.c's 32-bit tokens of Llama 3"},
      {header(20240522, 1, 0), "begins with 20240522: llm.c's multiple-choice questions"},
      {header(20240326, 3, 0), "begins with 20240326: llm.c's model, not tokens"},
      {"x" + plain(range(0, 20)),
       "has 41 bytes, which is no whole number of 16-bit tokens: truncated, or not a file of tokens; check "
       "data.path"},
  };
  for (const Case& c : cases) {
    const Folder folder;
    write_text(folder / "train.bin", c.content);
    write_text(folder / "val.bin", good);
    CAPTURE(c.fault);
    const std::string fault = fault_of_both(tokens_at(folder.path()));
    CHECK_MESSAGE(contains(fault, (folder / "train.bin").string() + ": " + c.fault), fault);
  }
}

TEST_CASE("what is no 16-bit tokens, and has as many bytes, is told by its beginning") {
  const auto kind_of = [](const std::string& bytes) {
    return check_kind({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}).message();
  };
  const auto bytes_of = [](auto value_of) {
    std::string bytes;
    for (int i = 0; i < 300; ++i) {
      const auto value = value_of(i * 37 % 5000);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return bytes;
  };
  CHECK(kind_of(bytes_of([](int token) { return static_cast<std::uint16_t>(token); })) == "");
  CHECK(contains(kind_of(bytes_of([](int token) { return static_cast<std::uint32_t>(token); })),
                 "a value of 32 bits for each token, where 16-bit tokens are expected"));
  CHECK(contains(kind_of(bytes_of([](int token) { return static_cast<std::int64_t>(token); })),
                 "a value of 64 bits for each token"));
  CHECK(contains(kind_of(bytes_of([](int token) { return static_cast<float>(token); })),
                 "floating-point numbers"));
  CHECK(contains(kind_of("\x93NUMPY" + std::string(100, '\0')), "is a NumPy array with its header"));
  CHECK(contains(kind_of("Before we proceed any further, hear me speak.\n…"), "`dtrun prepare` makes them"));
  // Tokens that look like one of these and are none: few values, zeros, a short file.
  int i = 0;
  CHECK(kind_of(bytes_of([&i](int) { return static_cast<std::uint16_t>(i++ % 10 == 0 ? 7 : 0); })) == "");
  CHECK(kind_of(bytes_of([&i](int) { return static_cast<std::uint16_t>(i++ % 3); })) == "");
  CHECK(kind_of(bytes_of([](int) { return std::uint16_t{0}; })) == "");
  CHECK(kind_of("ab") == "");
  CHECK(kind_of("") == "");
}

TEST_CASE("what is missing or cannot be read is named") {
  const Folder folder;
  const auto path = folder.path();
  CHECK(contains(fault_of_both(tokens_at(path / "nowhere")),
                 "nowhere: cannot be read: No such file or directory; check the path"));
  CHECK(contains(fault_of_both(tokens_at(path)), "has no .bin file with \"train\" in its name"));
  write_text(path / "train.bin", shard(range(0, 20)));
  CHECK(contains(check_fault_of(tokens_at(path)), "has no .bin file with \"val\" or \"test\" in its name"));
  write_text(path / "val.bin", shard(range(0, 20)));
  CHECK(check_fault_of(tokens_at(path)) == "accepted");
  {
    const Unreadable nobody(path / "train.bin");
    CHECK(contains(fault_of_both(tokens_at(path / "train.bin")),
                   "train.bin: cannot be read: Permission denied"));
  }
  std::filesystem::remove(path / "train.bin");
  std::filesystem::create_directory(path / "train.bin");
  CHECK(contains(fault_of_both(tokens_at(path)), "train.bin: cannot be read: it is a directory"));
  CHECK(
      contains(fault_of_both(tokens_at("/dev/zero")), "/dev/zero: cannot be read: it is not a regular file"));
}

TEST_CASE("a name must tell the split") {
  for (const char* name : {"shard_000.bin", "train_and_val.bin"}) {
    const Folder folder;
    write_text(folder / "train.bin", shard(range(0, 20)));
    write_text(folder / "test.bin", shard(range(0, 20)));
    CHECK(check_fault_of(tokens_at(folder.path())) == "accepted");
    write_text(folder / name, shard(range(0, 20)));
    const std::string fault = fault_of_both(tokens_at(folder.path()));
    CHECK_MESSAGE(contains(fault, std::string(name) + ": has "), fault);
    CHECK_MESSAGE(contains(fault, " of \"train\" and \"val\" (or \"test\") in its name"), fault);
  }
}

TEST_CASE("data too small for one sample is refused") {
  const Folder folder;
  write_text(folder / "train.bin", shard(range(0, 5)));
  write_text(folder / "val.bin", shard(range(0, 5)));
  CHECK(check_fault_of(tokens_at(folder.path(), 4)) == "accepted");
  CHECK(contains(fault_of_both(tokens_at(folder.path(), 5)),
                 ": has 5 tokens to train on, fewer in any file than a sample of data.sequence_length 5"));
  write_text(folder / "one", plain({1}));
  CHECK(
      contains(fault_of_both(tokens_at(folder / "one")), "one: has 1 tokens to train on, fewer in any file"));
}

TEST_CASE("a file that is cut while the job trains is an error that names it") {
  const Folder folder;
  write_text(folder / "train.bin", shard(range(0, 100)));
  write_text(folder / "val.bin", shard(range(0, 100)));
  const auto train = load_dataset(tokens_at(folder.path()), Split::kTrain);
  std::filesystem::resize_file(folder / "train.bin", 1100);
  CHECK(samples_of(*train, {0}).tokens == range(0, 4));
  CHECK(contains(input_fault([&] { samples_of(*train, {20}); }),
                 "train.bin: cannot be read: it became shorter; leave data files as they are"));
}

TEST_CASE("shards beyond those that stay open are read as well") {
  const Folder folder;
  constexpr int kShards = static_cast<int>(kMostOpenFiles) + 50;
  for (int i = 0; i < kShards; ++i) {
    write_text(folder / ("train_" + std::to_string(1000 + i) + ".bin"), shard(range(i, i + 5)));
  }
  write_text(folder / "val.bin", shard(range(0, 5)));
  const auto train = load_dataset(tokens_at(folder.path()), Split::kTrain);
  REQUIRE(train->size() == kShards);
  for (int i = 0; i < kShards; ++i) {
    CHECK(samples_of(*train, {static_cast<std::uint32_t>(i)}).tokens == range(i, i + 4));
  }
  const auto open_files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  CHECK(open_files < static_cast<int>(kMostOpenFiles) + 20);
}

TEST_CASE("a file of 100 GB needs no more memory than a small one, until its samples have no numbers") {
  const Folder folder;
  const auto path = folder / "big.bin";
  write_text(path, "");
  std::filesystem::resize_file(path, 100'000'000'000);  // a hole: zeros
  const auto before = mallinfo2();
  const auto train = load_dataset(tokens_at(path, 1024), Split::kTrain);
  const auto last = static_cast<std::uint32_t>(train->size() - 1);
  CHECK(last == (45'000'000'000 - 1) / 1024 - 1);
  CHECK(samples_of(*train, {last, 0, last / 2}).tokens == Ints(3 * 1024, 0));
  const auto after = mallinfo2();
  CHECK(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (1 << 20));
  // Samples are numbered with 32 bits.
  DataConfig config = tokens_at(path, 1);
  config.test_fraction = 1 - (4294967296.0 - 0.5) / 5e10;
  CHECK(load_dataset(config, Split::kTrain)->size() == 4294967295);
  config.test_fraction = 1 - (4294967297.0 - 0.5) / 5e10;
  CHECK(contains(load_fault_of(config), "more than 4,294,967,295 samples; make data.sequence_length larger"));
}

TEST_CASE("the tokenizer beside the shards, or the one that is named, fits the vocabulary") {
  const Folder folder;
  write_text(folder / "train.bin", plain(range(0, 50)));
  write_text(folder / "val.bin", plain(range(0, 50)));
  const std::filesystem::path fixture = DTRUN_SOURCE_DIR "/tests/worker/tokenizer/fixture/tokenizer.json";
  DataConfig config = tokens_at(folder.path());
  CHECK_FALSE(tokenizer_of(config).value());
  std::filesystem::copy(fixture, folder / "tokenizer.json");
  REQUIRE(tokenizer_of(config).value());
  const int size = tokenizer_of(config).value()->tokenizer->size();
  const auto fault = [&](int vocab_size) {
    config.vocab_size = vocab_size;
    const Status status = check_dataset(config).status();
    if (status.ok()) return std::string("accepted");
    CHECK(status.exit_code() == kExitConfig);
    return status.message();
  };
  CHECK(fault(size) == "accepted");
  CHECK(fault(size + 64) == "accepted");  // padded
  CHECK(fault(size - 1) == "/data/vocab_size: " + std::to_string(size - 1) +
                               ", but the tokenizer beside the tokens in " + folder.path().string() +
                               " has " + std::to_string(size) + " tokens; set it to that or more");
  // A tokenizer that the config does not name may be unsupported.
  write_text(folder / "tokenizer.json", "{}");
  CHECK(fault(size - 1) == "accepted");
  CHECK_FALSE(tokenizer_of(config).value());
  config.path = (folder / "train.bin").string();
  std::filesystem::remove(folder / "tokenizer.json");
  config.tokenizer = fixture.string();
  CHECK(contains(fault(size - 1), "but the tokenizer in " + fixture.string() + " has"));
  CHECK(fault(size) == "accepted");
}

}  // namespace
}  // namespace dtrun::worker::tokens_test
