#include "worker/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstring>

namespace dtrun::worker {

// ---- Tokenizer

Tokenizer::Tokenizer(TokenizerSpec spec)
    : spec_(std::move(spec)),
      merges_(spec_.merges),
      first_(spec_.added, false),
      second_(spec_.added, true),
      pattern_(pattern_of(spec_.words)) {
  for (std::size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& bytes = spec_.tokens[id];
    if (!bytes.empty()) id_of_.emplace(bytes, static_cast<std::int32_t>(id));
  }
  for (const AddedToken& added : spec_.added) id_of_[added.content] = added.id;
  for (int byte = 0; byte < 256; ++byte)
    of_byte_[static_cast<std::size_t>(byte)] = id_of_.at(std::string(1, static_cast<char>(byte)));
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(spec_.tokens[static_cast<std::size_t>(id)]) : "";
}

std::optional<std::int32_t> Tokenizer::id_of(const std::string& content) const {
  const auto found = id_of_.find(content);
  if (found == id_of_.end()) return std::nullopt;
  return found->second;
}

Tokenizer::Finder::Finder(const std::vector<AddedToken>& added, bool normalized) {
  for (const AddedToken& token : added) {
    if (token.normalized != normalized) continue;
    by_first_byte_[static_cast<std::uint8_t>(token.content[0])].push_back(token);
    longest_ = std::max(longest_, token.content.size());
    none_ = false;
  }
  for (std::vector<AddedToken>& tokens : by_first_byte_)
    std::ranges::stable_sort(tokens, std::ranges::greater(),
                             [](const AddedToken& t) { return t.content.size(); });
}

std::optional<Tokenizer::TokenMatch> Tokenizer::Finder::find(std::string_view text, std::size_t from) const {
  if (none_) return std::nullopt;
  for (std::size_t i = from; i < text.size(); ++i) {
    for (const AddedToken& token : by_first_byte_[static_cast<std::uint8_t>(text[i])]) {
      if (text.substr(i, token.content.size()) == token.content)
        return TokenMatch{.begin = i, .end = i + token.content.size(), .id = token.id};
    }
  }
  return std::nullopt;
}

bool Tokenizer::Finder::reaches(std::string_view text, std::size_t place) const {
  for (std::size_t i = place - std::min(place, longest_); i < place; ++i) {
    for (const AddedToken& token : by_first_byte_[static_cast<std::uint8_t>(text[i])]) {
      if (i + token.content.size() >= place && text.substr(i, token.content.size()) == token.content)
        return true;
    }
  }
  return false;
}

// ---- Encoder

Encoder::Encoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      words_(tokenizer.pattern_),
      word_ends_(word_end_pattern()),
      merger_(tokenizer.merges_),
      remembered_(kRemembered) {}

void Encoder::encode(std::string_view text, bool begins, std::vector<std::int32_t>& ids) {
  // Two rounds of added tokens, as in `tokenizers`; the text between them is encoded as words.
  const auto in_rest = [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const auto found = tokenizer_.second_.find(text.substr(0, end), at);
      const std::size_t stop = found ? found->begin : end;
      encode_between(text.substr(at, stop - at), begins || at > 0, ids);
      if (found) ids.push_back(found->id);
      at = found ? found->end : end;
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto found = tokenizer_.first_.find(text, at);
    in_rest(at, found ? found->begin : text.size());
    if (found) ids.push_back(found->id);
    at = found ? found->end : text.size();
  }
}

void Encoder::encode_between(std::string_view text, bool begins, std::vector<std::int32_t>& ids) {
  if (text.empty()) return;
  if (!tokenizer_.spec_.add_prefix_space || !begins || text[0] == ' ') return encode_words(text, ids);
  prefixed_.assign(1, ' ');
  prefixed_ += text;
  encode_words(prefixed_, ids);
}

void Encoder::encode_words(std::string_view text, std::vector<std::int32_t>& ids) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto word = words_.find(text, at);
    const std::size_t begin = word ? word->begin : text.size();
    if (begin > at) encode_word(text.substr(at, begin - at), ids);  // text that the pattern does not match
    if (word) encode_word(text.substr(begin, word->end - begin), ids);
    at = word ? word->end : text.size();
  }
}

void Encoder::merge_word(std::string_view word) {
  word_.clear();
  if (tokenizer_.spec_.ignore_merges) {
    if (const auto id = tokenizer_.id_of(std::string(word))) {
      word_.push_back(*id);
      return;
    }
  }
  for (const char byte : word) word_.push_back(tokenizer_.of_byte_[static_cast<std::uint8_t>(byte)]);
  merger_.merge(word_);
}

void Encoder::encode_word(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > kRememberedBytes) {
    merge_word(word);
    ids.insert(ids.end(), word_.begin(), word_.end());
    return;
  }
  std::array<char, 32> padded{};
  std::memcpy(padded.data(), word.data(), word.size());
  padded[kRememberedBytes] = static_cast<char>(word.size());
  std::array<std::uint64_t, 4> parts;
  std::memcpy(parts.data(), padded.data(), sizeof parts);
  std::uint64_t hash = 0;
  for (const std::uint64_t part : parts) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  Word& place = remembered_[hash % kRemembered];
  if (place.length == word.size() && std::memcmp(place.bytes.data(), padded.data(), kRememberedBytes) == 0) {
    ids.insert(ids.end(), place.ids.begin(), place.ids.begin() + place.count);
    return;
  }
  merge_word(word);
  ids.insert(ids.end(), word_.begin(), word_.end());
  if (word_.size() > kRememberedIds) return;
  std::memcpy(place.bytes.data(), padded.data(), kRememberedBytes);
  place.length = static_cast<std::uint8_t>(word.size());
  place.count = static_cast<std::uint8_t>(word_.size());
  std::ranges::copy(word_, place.ids.begin());
}

std::optional<std::size_t> Encoder::cut(std::string_view text, std::size_t from) {
  // A word may end right at `from`, so the character before it counts.
  std::size_t at = std::min(from, text.size());
  if (at > 0) {
    do --at;
    while (at > 0 && (text[at] & 0xc0) == 0x80);
  }
  while (const auto end = word_ends_.find(text, at)) {
    at = end->end;
    if (at >= from && !tokenizer_.first_.reaches(text, at) && !tokenizer_.second_.reaches(text, at))
      return at;
  }
  return std::nullopt;
}

}  // namespace dtrun::worker
