#include "worker/data/text_pieces.h"

#include <algorithm>
#include <array>
#include <span>

#include "proto/core/utf8.h"
#include "worker/base/pulse.h"
#include "worker/data/foreign.h"
#include "worker/data/message.h"
#include "worker/tokenizer/parse.h"

namespace dtrun::worker {
namespace {

constexpr std::size_t kReadAtOnce = kTextPiece;
// A piece is cut within its last bytes, so many that a few words fit.
constexpr std::size_t kRoomForCut = std::size_t{64} << 10;
constexpr std::size_t kLongestCharacter = 4;

Status no_word_end(const std::filesystem::path& path, std::uint64_t byte) {
  return bad_input(path, "from byte " + with_thousands(byte) + " on no word ends for " +
                             with_thousands(kLongestTextPiece) + " bytes; is it text?");
}

bool continues_character(char byte) { return (byte & 0xc0) == 0x80; }

}  // namespace

Status no_utf8(const std::filesystem::path& path, std::uint64_t byte) {
  std::array<std::uint8_t, 32> beginning{};
  const auto file = InputFile::open(path);
  const std::size_t size = file.ok() ? std::min<std::uint64_t>(file.value().size(), beginning.size()) : 0;
  if (size > 0 && file.value().read(0, std::span(beginning).first(size)).ok())
    if (const std::string kind = foreign_kind(beginning); !kind.empty()) return bad_input(path, kind);
  return bad_input(path,
                   "byte " + with_thousands(byte) +
                       " is no UTF-8; convert the file (iconv -t UTF-8), or leave it out if it is no text");
}

Status TextPieces::read_more() {
  const std::size_t size = std::min<std::uint64_t>(kReadAtOnce, end_ - next_), had = text_.size();
  text_.resize(had + size);
  RETURN_IF_ERROR(file_.read(next_, {reinterpret_cast<std::uint8_t*>(text_.data()) + had, size}));
  Pulse::beat();
  next_ += size;
  const auto bad = invalid_utf8_at(std::string_view(text_).substr(valid_));
  valid_ = bad ? valid_ + *bad : text_.size();
  // The last bytes may be the beginning of a character.
  const bool cut = next_ < end_ && text_.size() - valid_ < kLongestCharacter;
  return bad && !cut ? no_utf8(file_.path(), next_ - text_.size() + valid_) : Status();
}

Result<std::optional<std::string>> TextPieces::next() {
  std::size_t looked = 0;
  while (next_ < end_) {
    RETURN_IF_ERROR(read_more());
    if (next_ == end_) break;
    if (valid_ == 0) continue;
    const std::size_t from = std::max(looked, valid_ - std::min(valid_, kRoomForCut));
    const std::string_view valid = std::string_view(text_).substr(0, valid_);
    if (const auto cut = encoder_.cut(valid, from)) {
      std::string rest = text_.substr(*cut);
      text_.resize(*cut);
      valid_ -= *cut;
      return std::optional(std::exchange(text_, std::move(rest)));
    }
    looked = valid_ - 1;
    if (text_.size() >= kLongestTextPiece) return no_word_end(file_.path(), next_ - text_.size());
  }
  if (text_.empty()) return std::optional<std::string>();
  valid_ = 0;
  return std::optional(std::exchange(text_, ""));
}

Result<std::uint64_t> cut_behind(const InputFile& file, std::uint64_t place, Encoder& encoder) {
  // The text before the place matters too: no added token may reach over the cut.
  const std::uint64_t before = std::min<std::uint64_t>(place, kLongestAddedToken + kLongestCharacter);
  for (std::size_t behind = kRoomForCut;; behind *= 4) {
    std::string text(std::min<std::uint64_t>(before + behind, file.size() - (place - before)), '\0');
    RETURN_IF_ERROR(file.read(place - before, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
    const bool whole = place - before + text.size() == file.size();
    std::size_t begin = 0, from = before;
    while (begin < from && continues_character(text[begin])) ++begin;
    while (from < text.size() && continues_character(text[from])) ++from;
    std::string_view valid = std::string_view(text).substr(begin);
    if (const auto bad = invalid_utf8_at(valid)) {
      if (whole || valid.size() - *bad >= kLongestCharacter)
        return no_utf8(file.path(), place - before + begin + *bad);
      valid = valid.substr(0, *bad);
    }
    if (from - begin <= valid.size()) {
      if (const auto cut = encoder.cut(valid, from - begin)) return place - before + begin + *cut;
    }
    if (whole) return file.size();
    if (behind > kLongestTextPiece) return no_word_end(file.path(), place);
  }
}

}  // namespace dtrun::worker
