// Any bytes as a tokenizer file: a status, or a tokenizer that gives back whatever text it encodes, whole and
// in parts. The bytes behind the first zero byte are the text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "proto/core/utf8.h"
#include "worker/tokenizer/byte_alphabet.h"
#include "worker/tokenizer/parse.h"
#include "worker/tokenizer/tokenizer.h"
#include "worker/tokenizer/utf8.h"

using namespace dtrun::worker;

namespace {

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  Encoder encoder(tokenizer);
  std::vector<std::int32_t> ids, parts;
  encoder.encode(text, true, ids);
  std::string decoded;
  for (const std::int32_t id : ids) decoded += tokenizer.bytes_of(id);
  if (!tokenizer.spec().add_prefix_space && decoded != text) std::abort();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = encoder.cut(text.substr(at), 0).value_or(text.size() - at);
    encoder.encode(text.substr(at, end), at == 0, parts);
    at += end;
  }
  if (parts != ids) std::abort();
}

// GPT-2's words, pairs of letters merged, and two added tokens.
const Tokenizer& of_our_own() {
  static const Tokenizer tokenizer([] {
    TokenizerSpec spec;
    for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
    for (const std::string pair : {"ab", "bc", " a", "aa", "\xc3\xa9", "''"}) {
      spec.merges.push_back({static_cast<std::uint8_t>(pair[0]), static_cast<std::uint8_t>(pair[1]),
                             static_cast<std::int32_t>(spec.tokens.size())});
      spec.tokens.push_back(pair);
    }
    for (const char* added : {"<a", "<a b>"}) {
      spec.added.push_back({added, static_cast<std::int32_t>(spec.tokens.size()), false, spec.added.empty()});
      spec.tokens.emplace_back(added);
    }
    return spec;
  }());
  return tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view file = all.substr(0, all.find('\0'));
  const std::string_view text = all.substr(std::min(file.size() + 1, size));
  const bool is_text = !dtrun::invalid_utf8_at(text);
  if (is_text) check_round_trip(of_our_own(), text);
  WholeCharacters characters;
  std::string shown;
  for (const char byte : text) shown += characters.take({&byte, 1});
  shown += characters.finish();
  if (dtrun::invalid_utf8_at(shown) || (is_text && shown != text)) std::abort();
  if (const auto bytes = bytes_of_letters(text); bytes && letters_of_bytes(*bytes) != text) std::abort();

  const auto spec = parse_tokenizer_json(file);
  if (!spec.ok()) {
    if (spec.status().message().empty()) std::abort();
    (void)parse_vocab_and_merges(file, text);
    return 0;
  }
  if (is_text) check_round_trip(Tokenizer(spec.value()), text);
  return 0;
}
