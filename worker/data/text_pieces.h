// A text file of any size in pieces that can be encoded by themselves: the ids of the pieces, one behind the
// other, are those of the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/core/status.h"
#include "worker/data/input_file.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {

// Most pieces have about the first size, and none has more than the second; a text without a place to cut
// within the second is refused.
inline constexpr std::size_t kTextPiece = std::size_t{1} << 20, kLongestTextPiece = std::size_t{4} << 20;

class TextPieces {
 public:
  // The pieces of the bytes from `begin` to `end`, each of which is 0, the file's size or a place that
  // cut_behind() returned. The encoder is used for cutting only. REQUIRES: file and encoder outlive this
  // object.
  TextPieces(const InputFile& file, std::uint64_t begin, std::uint64_t end, Encoder& encoder)
      : file_(file), encoder_(encoder), next_(begin), end_(end) {}

  // The next piece, which is UTF-8; nothing at the end. EX_NOINPUT, naming file and byte, for bytes that are
  // not UTF-8.
  Result<std::optional<std::string>> next();

 private:
  Status read_more();

  const InputFile& file_;
  Encoder& encoder_;
  std::uint64_t next_, end_;  // the bytes not read yet
  std::string text_;          // read, and not handed out
  std::size_t valid_ = 0;     // so many bytes of text_ are whole characters
};

// The first place at or behind the byte `place` at which the file can be cut; the file's end if there is
// none. Fails as TextPieces::next() does.
Result<std::uint64_t> cut_behind(const InputFile& file, std::uint64_t place, Encoder& encoder);

// "PATH: byte 123 is no UTF-8; …"
Status no_utf8(const std::filesystem::path& path, std::uint64_t byte);

}  // namespace dtrun::worker
