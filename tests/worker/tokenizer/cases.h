// Texts and the ids that Hugging Face's tokenizers gives them, a JSON object a line.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/tokenizer/load.h"

namespace dtrun::worker {

inline std::vector<std::int32_t> ids_of(Encoder& encoder, std::string_view text) {
  std::vector<std::int32_t> ids;
  encoder.encode(text, true, ids);
  return ids;
}

inline std::string decoded(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += tokenizer.bytes_of(id);
  return text;
}

// The text encoded in parts, cut wherever it may be cut.
inline std::vector<std::int32_t> ids_in_parts(Encoder& encoder, std::string_view text) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  do {
    const std::size_t end = encoder.cut(text.substr(at), 0).value_or(text.size() - at);
    encoder.encode(text.substr(at, end), at == 0, ids);
    at += end;
  } while (at < text.size());
  return ids;
}

// Returns how many cases there were.
inline int check_cases(const std::filesystem::path& directory) {
  const auto loaded = load_tokenizer(directory);
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().message());
  const Tokenizer& tokenizer = *loaded.value().tokenizer;
  Encoder encoder(tokenizer);
  std::ifstream lines(directory / "cases.jsonl");
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const auto one = nlohmann::json::parse(line);
    const std::string text = one["text"];
    const std::vector<std::int32_t> wanted = one["ids"];
    CAPTURE(text.substr(0, 200));
    REQUIRE(ids_of(encoder, text) == wanted);
    REQUIRE(ids_in_parts(encoder, text) == wanted);
    if (!tokenizer.spec().add_prefix_space) REQUIRE(decoded(tokenizer, wanted) == text);
  }
  return cases;
}

}  // namespace dtrun::worker
