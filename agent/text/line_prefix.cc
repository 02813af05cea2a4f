#include "agent/text/line_prefix.h"

#include <algorithm>
#include <iterator>

#include "agent/text/python_template.h"
#include "proto/core/text.h"

namespace dtrun::agent {
namespace {

struct Token {
  bool placeholder = false;
  std::string text;  // a placeholder's name, or literal text; "{" for a placeholder that is not closed
};

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  const auto literal = [&](char c) {
    if (tokens.empty() || tokens.back().placeholder) tokens.push_back({false, ""});
    tokens.back().text += c;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] == '{' || text[i] == '}') && doubled) {
      literal(text[i++]);
    } else if (text[i] != '{') {
      literal(text[i]);
    } else {
      const std::size_t close = text.find('}', i);
      if (close == std::string::npos) return tokens.push_back({true, "{"}), tokens;
      tokens.push_back({true, text.substr(i + 1, close - i - 1)});
      i = close;
    }
  }
  return tokens;
}

std::string value_of(const std::string& name, const PrefixFields& fields) {
  if (name == "role") return fields.role;
  if (name == "rank") return std::to_string(fields.rank);
  if (name == "local_rank") return std::to_string(fields.local_rank);
  return fields.host;
}

constexpr const char* kTorchrunFields[][2] = {
    {"role_name", "role"}, {"rank", "rank"}, {"local_rank", "local_rank"}, {"hostname", "host"}};

const char* our_name(std::string_view theirs) {
  for (const auto& [name, ours] : kTorchrunFields) {
    if (theirs == name) return ours;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> unknown_placeholder(const std::string& text) {
  for (const Token& token : tokens_of(text)) {
    const bool known = std::any_of(std::begin(kPrefixFields), std::end(kPrefixFields),
                                   [&](const char* field) { return token.text == field; });
    if (token.placeholder && !known) return token.text;
  }
  return std::nullopt;
}

std::string from_torchrun_template(const std::string& text) {
  std::string ours;
  for (const TemplatePiece& piece : template_pieces(text)) {
    if (const char* field = our_name(piece.name)) {
      ours += "{" + std::string(field) + "}";
      continue;
    }
    for (char c : piece.text) {
      ours += c;
      if (c == '{' || c == '}') ours += c;
    }
  }
  return ours;
}

void LinePrefix::append_to(std::string* out, std::string_view time) const {
  out->append(pieces.front());
  for (std::size_t i = 1; i < pieces.size(); ++i) out->append(time).append(pieces[i]);
}

LinePrefix fill_prefix(const std::string& text, const PrefixFields& fields) {
  LinePrefix prefix;
  for (const Token& token : tokens_of(text)) {
    if (token.placeholder && token.text == "time") {
      prefix.pieces.emplace_back();
    } else {
      prefix.pieces.back() += token.placeholder ? value_of(token.text, fields) : token.text;
    }
  }
  return prefix;
}

std::string timestamp(Millis since_1970) {
  const std::string milliseconds = std::to_string(1000 + since_1970 % 1000).substr(1);
  return utc_text(since_1970 / 1000, "%Y-%m-%dT%H:%M:%S.") + milliseconds + "Z";
}

}  // namespace dtrun::agent
