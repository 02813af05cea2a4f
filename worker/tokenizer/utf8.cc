#include "worker/tokenizer/utf8.h"

#include "proto/core/utf8.h"

namespace dtrun::worker {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

}  // namespace

std::string WholeCharacters::take(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::size_t i = 0;
  while (i < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(i, 4);
    const Utf8Front found = utf8_front(rest);
    if (found.kind == Utf8Front::kCut) break;
    text += found.kind == Utf8Front::kWhole ? rest.substr(0, found.length) : kReplacement;
    i += found.length;
  }
  pending_.erase(0, i);
  return text;
}

std::string WholeCharacters::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? kReplacement : "";
}

}  // namespace dtrun::worker
