#include "worker/tokenizer/parse.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "worker/config/strict_json.h"
#include "worker/tokenizer/byte_alphabet.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {
namespace {

// Not ordered: a vocabulary has a hundred thousand keys.
using VocabJson = nlohmann::json;

Status refused(const std::string& what) { return Status(kExitNoInput, what); }

std::string quote(std::string_view text) { return '"' + printable(text.substr(0, 60)) + '"'; }
std::string brief(const VocabJson& value) { return shown(nlohmann::ordered_json(value)); }

const VocabJson kNull;

const VocabJson& member(const VocabJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string type_in(const VocabJson& object) {
  const VocabJson& type = member(object, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

// The error for a part of the file that would change ids.
Status not_supported(const std::string& what, const std::string& instead) {
  return refused(what + " is not supported (" + instead + ")");
}

// Refuses keys that no known version of the format has: they might change ids.
Status check_known(const VocabJson& object, const std::string& place,
                   std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end())
      return refused(place + " has an unknown key " + quote(key));
  }
  return {};
}

// Refuses options that are on. Each option comes with the value, besides null, that means off.
Status check_off(const VocabJson& object, const std::string& place,
                 std::initializer_list<std::pair<const char*, VocabJson>> options) {
  for (const auto& [key, off] : options) {
    const VocabJson& value = member(object, key);
    if (!value.is_null() && value != off)
      return not_supported(place + key + " " + brief(value),
                           "expected " + (off.is_null() ? "" : brief(off) + " or ") + "null");
  }
  return {};
}

Result<bool> flag(const VocabJson& object, const std::string& place, const char* key, bool otherwise) {
  const VocabJson& value = member(object, key);
  if (value.is_null()) return otherwise;
  if (value.is_boolean()) return value.get<bool>();
  return refused(place + key + " is " + brief(value) + ", expected true or false");
}

// ---- the vocabulary and the merges

// Tokens as the file writes them, and their ids.
using Ids = std::unordered_map<std::string, std::int32_t>;

Result<std::int32_t> id_in(const VocabJson& value, std::string_view token) {
  if (!value.is_number_integer() || value < 0 || value >= kMostTokens)
    return refused("the id of token " + quote(token) + " is " + brief(value) +
                   ", expected a number from 0 to " + std::to_string(kMostTokens - 1));
  return value.get<std::int32_t>();
}

// Puts a token in its place.
Status put(std::int32_t id, std::string bytes, std::string_view written, TokenizerSpec& spec) {
  if (bytes.empty()) return refused("token " + std::to_string(id) + " is empty");
  const auto index = static_cast<std::size_t>(id);
  if (spec.tokens.size() <= index) spec.tokens.resize(index + 1);
  if (!spec.tokens[index].empty())
    return refused("two tokens have the id " + std::to_string(id) + ", one of them " + quote(written));
  spec.tokens[index] = std::move(bytes);
  return {};
}

Result<Ids> read_vocab(const VocabJson& vocab, TokenizerSpec& spec) {
  if (!vocab.is_object() || vocab.empty())
    return refused("vocab is " + brief(vocab) + ", expected an object of tokens and their ids");
  Ids ids;
  for (const auto& [token, value] : vocab.items()) {
    ASSIGN_OR_RETURN(const auto id, id_in(value, token));
    RETURN_IF_ERROR(put(id, bytes_of_letters(token).value_or(token), token, spec));
    ids.emplace(token, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string letter = letters_of_bytes(std::string(1, static_cast<char>(byte)));
    if (!ids.contains(letter))
      return refused("the vocabulary lacks the byte " + std::to_string(byte) + ", written " + quote(letter) +
                     ": a byte-level one has all 256 (train it with initial_alphabet=ByteLevel.alphabet())");
  }
  return ids;
}

Status add_merge(const std::string& left, const std::string& right, const Ids& ids, TokenizerSpec& spec) {
  const std::string number = "merge " + std::to_string(spec.merges.size() + 1) + ": ";
  const auto id_of = [&](const std::string& token) -> Result<std::int32_t> {
    const auto found = ids.find(token);
    if (found == ids.end()) return refused(number + quote(token) + " is not in the vocabulary");
    return found->second;
  };
  const auto l = id_of(left), r = id_of(right), result = id_of(left + right);
  for (const auto* id : {&l, &r, &result})
    if (!id->ok()) return id->status();
  spec.merges.push_back({.left = l.value(), .right = r.value(), .result = result.value()});
  return {};
}

Status add_merge(std::string_view pair, const Ids& ids, TokenizerSpec& spec) {
  const std::size_t space = pair.find(' ');
  if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos)
    return refused("merge " + std::to_string(spec.merges.size() + 1) + " is " + quote(pair) +
                   ", expected two tokens with a space between them");
  return add_merge(std::string(pair.substr(0, space)), std::string(pair.substr(space + 1)), ids, spec);
}

Status read_merges(const VocabJson& merges, const Ids& ids, TokenizerSpec& spec) {
  if (!merges.is_array()) return refused("model.merges is " + brief(merges) + ", expected a list");
  for (const VocabJson& merge : merges) {
    Status status;
    if (merge.is_string())
      status = add_merge(merge.get_ref<const std::string&>(), ids, spec);
    else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      status = add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), ids, spec);
    else
      status = refused("merge " + std::to_string(spec.merges.size() + 1) + " is " + brief(merge) +
                       R"(, expected "a b" or ["a", "b"])");
    if (!status.ok()) return status;
  }
  return {};
}

// ---- the parts of a tokenizer.json

Result<Ids> read_model(const VocabJson& model, TokenizerSpec& spec) {
  if (!model.is_object()) return refused("model is " + brief(model) + ", expected an object");
  if (const std::string type = type_in(model); type != "BPE" && model.contains("type"))
    return not_supported("a model of the type " + quote(type), "expected \"BPE\"");
  Status status =
      check_known(model, "model",
                  {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                   "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  // unk_token and fuse_unk are for text outside the vocabulary, but all bytes are in it.
  if (status.ok())
    status = check_off(model, "model.",
                       {{"dropout", 0.0},
                        {"continuing_subword_prefix", ""},
                        {"end_of_word_suffix", ""},
                        {"byte_fallback", false}});
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(spec.ignore_merges, flag(model, "model.", "ignore_merges", false));
  ASSIGN_OR_RETURN(auto ids, read_vocab(member(model, "vocab"), spec));
  status = read_merges(member(model, "merges"), ids, spec);
  if (!status.ok()) return status;
  return ids;
}

Status read_byte_level(const VocabJson& byte_level, bool pattern_before, TokenizerSpec& spec) {
  const std::string place = "pre_tokenizer.";
  if (type_in(byte_level) != "ByteLevel")
    return not_supported("a pre_tokenizer of the type " + quote(type_in(byte_level)),
                         "expected \"ByteLevel\", or a Sequence of a Split and it");
  Status status =
      check_known(byte_level, "pre_tokenizer", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (!status.ok()) return status;
  const auto prefix = flag(byte_level, place, "add_prefix_space", true);
  const auto regex = flag(byte_level, place, "use_regex", true);
  if (!prefix.ok()) return prefix.status();
  if (!regex.ok()) return regex.status();
  if (regex.value() == pattern_before)
    return not_supported(
        place + "use_regex " + (regex.value() ? "true behind a Split" : "false without a Split before it"),
        "words are cut out once");
  if (prefix.value() && pattern_before)
    return not_supported(place + "add_prefix_space true behind a Split", "expected false");
  spec.add_prefix_space = prefix.value();
  return {};
}

Status read_split(const VocabJson& split, TokenizerSpec& spec) {
  if (type_in(split) != "Split")
    return not_supported("a pre_tokenizer Sequence that begins with " + quote(type_in(split)),
                         "expected a Split and a ByteLevel");
  Status status = check_known(split, "pre_tokenizer", {"type", "pattern", "behavior", "invert"});
  if (!status.ok()) return status;
  if (member(split, "behavior") != "Isolated")
    return not_supported("a Split with the behavior " + brief(member(split, "behavior")),
                         "expected \"Isolated\"");
  status = check_off(split, "pre_tokenizer.", {{"invert", false}});
  if (!status.ok()) return status;
  const VocabJson& pattern = member(split, "pattern");
  const VocabJson& regex = pattern.is_object() ? member(pattern, "Regex") : kNull;
  const auto words = regex.is_string() ? words_of_pattern(regex.get_ref<const std::string&>()) : std::nullopt;
  if (!words)
    return not_supported("a Split by the pattern " + brief(pattern),
                         "expected that of GPT-2, Llama 3 or Qwen 2");
  spec.words = *words;
  return {};
}

Status read_pre_tokenizer(const VocabJson& pre, TokenizerSpec& spec) {
  if (!pre.is_object()) return not_supported("a tokenizer without a pre_tokenizer", "expected a ByteLevel");
  if (type_in(pre) != "Sequence") return read_byte_level(pre, false, spec);
  const VocabJson& parts = member(pre, "pretokenizers");
  if (!parts.is_array() || parts.empty() || parts.size() > 2)
    return not_supported("a pre_tokenizer Sequence " + brief(parts), "expected a Split and a ByteLevel");
  const bool split = parts.size() == 2;
  for (const VocabJson& part : parts)
    if (!part.is_object()) return refused("pre_tokenizer has " + brief(part) + ", expected an object");
  if (split) {
    RETURN_IF_ERROR(read_split(parts[0], spec));
  }
  return read_byte_level(parts.back(), split, spec);
}

Status read_added(const VocabJson& added, Ids& ids, TokenizerSpec& spec) {
  if (added.is_null()) return {};
  if (!added.is_array()) return refused("added_tokens is " + brief(added) + ", expected a list");
  // `tokenizers` numbers added tokens that the vocabulary lacks so, whatever ids the file gives.
  auto next = static_cast<std::int64_t>(ids.size());
  for (const VocabJson& token : added) {
    const VocabJson& content = token.is_object() ? member(token, "content") : kNull;
    if (!content.is_string() || content.get_ref<const std::string&>().empty())
      return refused("added_tokens has " + brief(token) + ", expected an object with its content");
    const auto& text = content.get_ref<const std::string&>();
    const std::string place = "added token " + quote(text) + ": ";
    if (text.size() > kLongestAddedToken)
      return not_supported(place + "its length " + std::to_string(text.size()),
                           "expected at most " + std::to_string(kLongestAddedToken) + " bytes");
    Status status =
        check_known(token, "added token " + quote(text),
                    {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (status.ok())
      status = check_off(token, place, {{"single_word", false}, {"lstrip", false}, {"rstrip", false}});
    if (!status.ok()) return status;
    const auto id = id_in(member(token, "id"), text);
    const auto special = flag(token, place, "special", false),
               normalized = flag(token, place, "normalized", false);
    if (!id.ok()) return id.status();
    if (!special.ok()) return special.status();
    if (!normalized.ok()) return normalized.status();
    const auto known = ids.find(text);
    const std::int64_t wanted = known != ids.end() ? known->second : next;
    if (id.value() != wanted)
      return refused(place + "its id is " + std::to_string(id.value()) +
                     ", where `tokenizers` takes it for " + std::to_string(wanted));
    if (known == ids.end()) {
      status = put(id.value(), text, text, spec);
      if (!status.ok()) return status;
      ids.emplace(text, id.value());
      ++next;
    } else {
      spec.tokens[static_cast<std::size_t>(id.value())] = text;  // an added token is written as it is, not in
                                                                 // the byte alphabet
    }
    spec.added.push_back(
        {.content = text, .id = id.value(), .special = special.value(), .normalized = normalized.value()});
  }
  return {};
}

Result<VocabJson> json_in(std::string_view text) {
  VocabJson json = VocabJson::parse(text, nullptr, false);
  if (json.is_discarded()) {
    // Only parse_strict_json tells the place of the fault.
    const auto fault = parse_strict_json(text);
    return refused(fault.ok() ? "is no JSON" : fault.status().message());
  }
  if (!json.is_object()) return refused("found " + brief(json) + ", expected an object");
  return json;
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text) {
  ASSIGN_OR_RETURN(const auto parsed, json_in(text));
  const VocabJson& json = parsed;
  TokenizerSpec spec;
  Status status = check_known(json, "it",
                              {"version", "truncation", "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"});
  if (!status.ok()) return status;
  if (const VocabJson& normalizer = member(json, "normalizer"); !normalizer.is_null())
    return not_supported("a normalizer of the type " + quote(type_in(normalizer)), "expected none");
  status = check_off(json, "", {{"truncation", nullptr}, {"padding", nullptr}});
  if (!status.ok()) return status;
  if (const VocabJson& decoder = member(json, "decoder");
      !decoder.is_null() && type_in(decoder) != "ByteLevel")
    return not_supported("a decoder of the type " + quote(type_in(decoder)), "expected \"ByteLevel\"");
  status = read_pre_tokenizer(member(json, "pre_tokenizer"), spec);
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(auto ids, read_model(member(json, "model"), spec));
  status = read_added(member(json, "added_tokens"), ids, spec);
  if (!status.ok()) return status;
  return spec;
}

Result<TokenizerSpec> parse_vocab_and_merges(std::string_view vocab, std::string_view merges) {
  ASSIGN_OR_RETURN(const auto parsed, json_in(vocab));
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const auto ids, read_vocab(parsed, spec));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (merges.starts_with(kByteOrderMark)) merges.remove_prefix(kByteOrderMark.size());
  while (!merges.empty()) {
    const std::size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    if (const Status status = add_merge(line, ids, spec); !status.ok())
      return status.within("in the merges.txt beside it");
  }
  if (const auto end = ids.find(kEndOfText); end != ids.end())
    spec.added.push_back({.content = kEndOfText, .id = end->second, .special = true, .normalized = false});
  return spec;
}

}  // namespace dtrun::worker
