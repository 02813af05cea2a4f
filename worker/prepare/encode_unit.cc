#include "worker/prepare/encode_unit.h"

#include <algorithm>
#include <string_view>

#include "proto/core/number.h"
#include "proto/json/json.h"
#include "worker/config/strict_json.h"
#include "worker/data/message.h"

namespace dtrun::worker {
namespace {

void add_document(std::string_view text, const EncodingRules& rules, Encoder& encoder,
                  std::vector<std::int32_t>& tokens) {
  if (text.empty()) return;
  tokens.push_back(rules.end_of_text);
  encoder.encode(text, true, tokens);
}

// The byte at which the validation's part of a whole document begins.
std::size_t cut_of(std::string_view text, double val_fraction, Encoder& encoder) {
  const auto from = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - val_fraction));
  return encoder.cut(text, from).value_or(text.size());
}

struct InputLine {
  const InputSource& source;
  std::uint64_t number;

  Status fault(const std::string& what) const {
    return bad_input(source.path, "line " + with_thousands(number) + ": " + what);
  }
};

// The line with a 0 for each number that only other programs read: Python writes NaN and Infinity, others
// numbers that no double holds.
std::string without_numbers(std::string_view json) {
  std::string text;
  while (!json.empty()) {
    std::size_t end = std::clamp<std::size_t>(json.find_first_of("\",:[]{} \t\r"), 1, json.size());
    if (json[0] == '"') {
      while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, json.size());
    }
    const std::string_view token = json.substr(0, end);
    double number = 0;
    const auto [behind, error] = read_number_at(token, &number, 10);
    const bool no_double = error == std::errc::result_out_of_range && behind == token.data() + token.size();
    const bool of_python = token == "NaN" || token == "Infinity" || token == "-Infinity";
    text += no_double || of_python ? "0" : token;
    json.remove_prefix(end);
  }
  return text;
}

Result<std::string> text_in(std::string_view json, const EncodingRules& rules, const InputLine& line) {
  auto value = parse_json(json);
  if (!value.is_object()) value = parse_json(without_numbers(json));
  if (!value.is_object()) {
    const auto why = parse_strict_json(json);
    return line.fault(why.ok() ? "no JSON object" : "no JSON: " + why.status().message());
  }
  const auto field = value.find(rules.json_field);
  if (field == value.end()) {
    std::string names;
    for (const auto& [name, ignored] : value.items())
      if (names.size() < 100) names += (names.empty() ? "" : ", ") + printable(name);
    return line.fault("has no \"" + printable(rules.json_field) + "\", which the text is in; it has " +
                      (names.empty() ? "nothing" : names) + " (--json_field)");
  }
  if (!field->is_string())
    return line.fault("\"" + printable(rules.json_field) + "\" is no string (--json_field)");
  return std::move(field->get_ref<std::string&>());
}

}  // namespace

Result<UnitTokens> encode_unit(const Unit& unit, const InputSource& source, const EncodingRules& rules,
                               Encoder& encoder) {
  UnitTokens tokens;
  if (!source.jsonl) {
    std::vector<std::int32_t>& ids = unit.val ? tokens.val : tokens.train;
    if (unit.begins) ids.push_back(rules.end_of_text);
    encoder.encode(unit.bytes, unit.begins, ids);
    tokens.documents = unit.begins && !(unit.val && rules.cut_documents) ? 1 : 0;
    return tokens;
  }
  std::string_view rest = unit.bytes;
  for (std::uint64_t i = 0; !rest.empty(); ++i) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view json = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (json.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ASSIGN_OR_RETURN(const auto text,
                     text_in(json, rules, {.source = source, .number = unit.first_line + i}));
    const std::string_view whole = text;
    if (whole.empty()) continue;
    ++tokens.documents;
    if (rules.cut_documents) {
      const std::size_t cut = cut_of(whole, rules.val_fraction, encoder);
      add_document(whole.substr(0, cut), rules, encoder, tokens.train);
      add_document(whole.substr(cut), rules, encoder, tokens.val);
    } else {
      const bool val = is_for_validation(unit.document + i, rules.val_fraction);
      add_document(whole, rules, encoder, val ? tokens.val : tokens.train);
    }
  }
  return tokens;
}

}  // namespace dtrun::worker
