#include "worker/tokenizer/parse.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "worker/tokenizer/byte_alphabet.h"
#include "worker/tokenizer/load.h"

namespace dtrun::worker::parse_test {
namespace {

using dtrun::test::contains;
using dtrun::test::Folder;
using dtrun::test::write_text;
using Json = nlohmann::json;

constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json vocab() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[letters_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["ab"] = 256;
  vocab["\u0120a"] = 257;
  return vocab;
}

// As `tokenizers` saves one.
Json whole() {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 258},
             {"content", "<|endoftext|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
          {"post_processor", {{"type", "ByteLevel"}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab()},
            {"merges", {"a b", {"\u0120", "a"}}}}}};
}

Json split_by(const std::string& pattern) {
  return {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
}

std::string fault_of(const std::function<void(Json&)>& change) {
  Json json = whole();
  change(json);
  const auto spec = parse_tokenizer_json(json.dump());
  if (spec.ok()) return "accepted";
  CHECK(spec.status().exit_code() == kExitNoInput);
  return spec.status().message();
}

TEST_CASE("a tokenizer.json is read, with merges as texts and as pairs") {
  const auto parsed = parse_tokenizer_json(whole().dump());
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  const TokenizerSpec& spec = parsed.value();
  REQUIRE(spec.tokens.size() == 259);
  CHECK(spec.tokens[256] == "ab");
  CHECK(spec.tokens[257] == " a");
  CHECK(spec.tokens[258] == "<|endoftext|>");
  REQUIRE(spec.merges.size() == 2);
  CHECK(spec.merges[0].result == 256);
  CHECK(spec.merges[1].left == ' ');
  REQUIRE(spec.added.size() == 1);
  CHECK(spec.added[0].special);
  CHECK(spec.words == Words::kGpt2);
  CHECK_FALSE(spec.add_prefix_space);
}

TEST_CASE("known patterns are taken, and what an option says") {
  Json json = whole();
  json["pre_tokenizer"] = split_by(kLlama3);
  json["model"]["ignore_merges"] = true;
  const auto llama = parse_tokenizer_json(json.dump());
  REQUIRE_MESSAGE(llama.ok(), llama.status().message());
  CHECK(llama.value().words == Words::kLlama3);
  CHECK(llama.value().ignore_merges);
  json = whole();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}};
  CHECK(parse_tokenizer_json(json.dump()).value().add_prefix_space);  // the default of `tokenizers`
  for (const auto& harmless : std::vector<std::function<void(Json&)>>{
           [](Json& j) { j["model"]["dropout"] = 0.0; },
           [](Json& j) { j["model"]["unk_token"] = "<|endoftext|>"; },
           [](Json& j) { j["model"].erase("type"); }, [](Json& j) { j["decoder"] = nullptr; },
           [](Json& j) { j["model"]["end_of_word_suffix"] = ""; }, [](Json& j) { j.erase("added_tokens"); },
           [](Json& j) {
             j["post_processor"] = {{"type", "TemplateProcessing"}};
           }})
    CHECK(fault_of(harmless) == "accepted");
}

TEST_CASE("what would change ids and is not done here is refused by its name") {
  struct Case {
    std::function<void(Json&)> change;
    std::string says;
  };
  const std::vector<Case> cases{
      {[](Json& j) {
         j["normalizer"] = {{"type", "NFC"}};
       },
       "a normalizer of the type \"NFC\" is not supported"},
      {[](Json& j) {
         j["truncation"] = {{"max_length", 8}};
       },
       "truncation {\"max_length\":8} is not supported"},
      {[](Json& j) {
         j["padding"] = {{"pad_id", 0}};
       },
       "padding {\"pad_id\":0} is not supported"},
      {[](Json& j) { j["model"]["type"] = "WordPiece"; },
       "a model of the type \"WordPiece\" is not supported"},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout 0.1 is not supported"},
      {[](Json& j) { j["model"]["byte_fallback"] = true; }, "model.byte_fallback true is not supported"},
      {[](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; },
       "model.continuing_subword_prefix \"##\""},
      {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix \"</w>\""},
      {[](Json& j) { j["model"]["ignore_merges"] = 1; }, "model.ignore_merges is 1, expected true or false"},
      {[](Json& j) { j["model"]["new_thing"] = 1; }, "model has an unknown key \"new_thing\""},
      {[](Json& j) { j["new_thing"] = 1; }, "it has an unknown key \"new_thing\""},
      {[](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       "a decoder of the type \"WordPiece\""},
      {[](Json& j) { j["pre_tokenizer"] = nullptr; }, "a tokenizer without a pre_tokenizer"},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       "a pre_tokenizer of the type \"Metaspace\""},
      {[](Json& j) { j["pre_tokenizer"]["use_regex"] = false; }, "use_regex false without a Split before it"},
      {[](Json& j) { j["pre_tokenizer"] = split_by("\\w+"); },
       "a Split by the pattern {\"Regex\":\"\\\\w+\"} is not"},
      {[](Json& j) {
         j["pre_tokenizer"] = split_by(kLlama3);
         j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
       },
       "a Split with the behavior \"Removed\""},
      {[](Json& j) {
         j["pre_tokenizer"] = split_by(kLlama3);
         j["pre_tokenizer"]["pretokenizers"][0]["invert"] = true;
       },
       "pre_tokenizer.invert true is not supported"},
      {[](Json& j) {
         j["pre_tokenizer"] = split_by(kLlama3);
         j["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true;
       },
       "use_regex true behind a Split"},
      {[](Json& j) {
         j["pre_tokenizer"] = split_by(kLlama3);
         j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
       },
       "add_prefix_space true behind a Split"},
      {[](Json& j) { j["added_tokens"][0]["lstrip"] = true; },
       "added token \"<|endoftext|>\": lstrip true is not"},
      {[](Json& j) { j["added_tokens"][0]["rstrip"] = true; }, "rstrip true is not"},
      {[](Json& j) { j["added_tokens"][0]["single_word"] = true; }, "single_word true is not"},
      {[](Json& j) { j["added_tokens"][0]["id"] = 300; },
       "its id is 300, where `tokenizers` takes it for 258"},
      {[](Json& j) { j["added_tokens"][0]["content"] = ""; }, "expected an object with its content"},
      {[](Json& j) { j["added_tokens"][0]["content"] = std::string(1025, 'x'); },
       "its length 1025 is not supported"}};
  for (const Case& one : cases) {
    const std::string fault = fault_of(one.change);
    CHECK_MESSAGE(contains(fault, one.says), fault);
  }
  CHECK(fault_of([](Json& j) { j["added_tokens"][0]["content"] = std::string(1024, 'x'); }) == "accepted");
}

TEST_CASE("what is no tokenizer is told apart from what is damaged") {
  struct Case {
    std::function<void(Json&)> change;
    std::string says;
  };
  const std::vector<Case> cases{
      {[](Json& j) { j["model"]["vocab"].erase("ab"); }, "merge 1: \"ab\" is not in the vocabulary"},
      {[](Json& j) { j["model"]["vocab"].erase("q"); }, "the vocabulary lacks the byte 113, written \"q\""},
      {[](Json& j) { j["model"]["vocab"]["ab"] = 5; }, "two tokens have the id 5"},
      {[](Json& j) { j["model"]["vocab"]["ab"] = -1; },
       "the id of token \"ab\" is -1, expected a number from 0 to"},
      {[](Json& j) { j["model"]["vocab"]["ab"] = kMostTokens; },
       "is 4194304, expected a number from 0 to 4194303"},
      {[](Json& j) { j["model"]["vocab"][""] = 300; }, "token 300 is empty"},
      {[](Json& j) { j["model"]["vocab"] = 1; }, "vocab is 1, expected an object"},
      {[](Json& j) { j["model"]["merges"] = 1; }, "model.merges is 1, expected a list"},
      {[](Json& j) { j["model"]["merges"][0] = "ab"; }, "merge 1 is \"ab\", expected two tokens"},
      {[](Json& j) { j["model"]["merges"][1] = {"a"}; }, "merge 2 is [\"a\"], expected \"a b\" or"},
      {[](Json& j) { j["model"] = 3; }, "model is 3, expected an object"}};
  for (const Case& one : cases) {
    const std::string fault = fault_of(one.change);
    CHECK_MESSAGE(contains(fault, one.says), fault);
  }
  CHECK(contains(parse_tokenizer_json("{\"model\": ").status().message(), "line 1"));
  CHECK(contains(parse_tokenizer_json("[]").status().message(), "found [], expected an object"));
  CHECK(contains(parse_vocab_and_merges(vocab().dump(), "a b\nb").status().message(),
                 "in the merges.txt beside it: merge 2 is \"b\""));
  CHECK(parse_vocab_and_merges(vocab().dump(), "\xef\xbb\xbf#version: 0.2\na b").ok());
}

TEST_CASE("a file that is not there or is none is named") {
  const Folder folder;
  CHECK(contains(load_tokenizer(folder.path()).status().message(),
                 "has neither a tokenizer.json nor a vocab.json"));
  CHECK(contains(load_tokenizer(folder / "none.json").status().message(),
                 "none.json: cannot be read: No such file"));
  write_text(folder / "vocab.json", vocab().dump());
  CHECK(contains(load_tokenizer(folder.path()).status().message(), "merges.txt: cannot be read"));
  CHECK_FALSE(has_tokenizer(folder.path()));
  CHECK(contains(load_tokenizer("/dev/null").status().message(), "/dev/null: is no file"));
  write_text(folder / "tokenizer.json", whole().dump());
  CHECK(load_tokenizer(folder.path()).ok());  // it goes before the two
  CHECK(tokenizer_files_in(folder.path()).size() == 1);
}

}  // namespace
}  // namespace dtrun::worker::parse_test
