#include "worker/prepare/inputs.h"

#include <algorithm>
#include <cmath>

#include "worker/data/message.h"
#include "worker/data/text_files.h"

namespace dtrun::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLines = std::size_t{1} << 20, kLongestLine = std::size_t{64} << 20;

Status read_bytes(const InputFile& file, std::uint64_t at, std::size_t size, std::string& bytes) {
  const std::size_t had = bytes.size();
  bytes.resize(had + size);
  return file.read(at, {reinterpret_cast<std::uint8_t*>(bytes.data()) + had, size});
}

// The number of lines, counted up to `enough`.
Result<std::uint64_t> lines_in(const InputFile& file, std::uint64_t enough) {
  std::uint64_t lines = 0;
  std::string bytes;
  for (std::uint64_t at = 0; at < file.size() && lines < enough; at += bytes.size()) {
    bytes.clear();
    RETURN_IF_ERROR(read_bytes(file, at, std::min<std::uint64_t>(kLines, file.size() - at), bytes));
    lines += static_cast<std::uint64_t>(std::ranges::count(bytes, '\n'));
  }
  return std::max<std::uint64_t>(lines, 1);
}

}  // namespace

bool is_for_validation(std::uint64_t document, double val_fraction) {
  const auto before = [&](std::uint64_t documents) {
    return std::floor(static_cast<double>(documents) * val_fraction);
  };
  return before(document + 1) > before(document);
}

Result<Inputs> find_inputs(const std::vector<std::string>& paths, const std::string& pattern,
                           double val_fraction) {
  Inputs inputs;
  // With so many documents at least one is for validation.
  const std::uint64_t enough =
      val_fraction > 0 ? static_cast<std::uint64_t>(std::ceil(1 / val_fraction)) + 1 : 0;
  std::uint64_t documents = 0;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const auto files, text_files(path, pattern));
    if (files.empty()) return bad_input(path, "has no files \"" + pattern + "\"");
    for (const fs::path& one : files) {
      ASSIGN_OR_RETURN(const auto file, InputFile::open(one));
      const std::uint64_t size = file.size();
      if (size == 0) continue;
      const bool jsonl = one.extension() == ".jsonl";
      std::uint64_t here = 1;
      if (jsonl && documents < enough) {
        ASSIGN_OR_RETURN(here, lines_in(file, enough));
      }
      documents += here;
      inputs.bytes += size;
      inputs.sources.push_back({.path = one, .size = size, .jsonl = jsonl});
    }
  }
  if (inputs.sources.empty()) return bad_input(paths.front(), "is empty; name files with text");
  inputs.cut_documents = documents < enough;
  return inputs;
}

Status UnitReader::open() {
  const InputSource& source = inputs_.sources[source_];
  ASSIGN_OR_RETURN(auto file, InputFile::open(source.path));
  file_.emplace(std::move(file));
  file_->read_ahead();
  next_byte_ = 0;
  line_ = 1;
  if (source.jsonl) return {};
  const std::uint64_t size = file_->size();
  if (!inputs_.cut_documents) {
    parts_ = {{.begin = 0, .end = size, .val = is_for_validation(document_, val_fraction_)}};
    return {};
  }
  const auto wanted = static_cast<std::uint64_t>(static_cast<double>(size) * (1 - val_fraction_));
  ASSIGN_OR_RETURN(const auto cut, cut_behind(*file_, wanted, cutter_));
  parts_ = {{.begin = cut, .end = size, .val = true}, {.begin = 0, .end = cut, .val = false}};
  return {};
}

Result<std::optional<Unit>> UnitReader::next() {
  while (source_ < inputs_.sources.size()) {
    if (!file_) {
      RETURN_IF_ERROR(open());
    }
    auto unit = inputs_.sources[source_].jsonl ? next_lines() : next_piece();
    if (!unit.ok() || unit.value()) return unit;
    if (!inputs_.sources[source_].jsonl) ++document_;
    file_.reset();
    ++source_;
  }
  return std::optional<Unit>();
}

Result<std::optional<Unit>> UnitReader::next_piece() {
  while (!parts_.empty()) {
    const InputSpan part = parts_.back();
    if (!pieces_) {
      pieces_.emplace(*file_, part.begin, part.end, cutter_);
      begins_ = true;
    }
    ASSIGN_OR_RETURN(auto piece, pieces_->next());
    if (piece) {
      return std::optional(Unit{.source = source_,
                                .bytes = *std::move(piece),
                                .begins = std::exchange(begins_, false),
                                .val = part.val,
                                .document = document_});
    }
    pieces_.reset();
    parts_.pop_back();
  }
  return std::optional<Unit>();
}

Result<std::optional<Unit>> UnitReader::next_lines() {
  const InputFile& file = *file_;
  std::string bytes = std::exchange(rest_, "");
  std::size_t end = std::string::npos;
  while (end == std::string::npos && next_byte_ < file.size()) {
    const std::size_t size = std::min<std::uint64_t>(kLines, file.size() - next_byte_);
    RETURN_IF_ERROR(read_bytes(file, next_byte_, size, bytes));
    next_byte_ += size;
    end = bytes.rfind('\n');
    if (end == std::string::npos && bytes.size() > kLongestLine) {
      return bad_input(file.path(), "line " + with_thousands(line_) + " has more than " +
                                        with_thousands(kLongestLine) + " bytes; is each line a JSON object?");
    }
  }
  if (bytes.empty()) return std::optional<Unit>();
  if (next_byte_ < file.size()) {
    rest_ = bytes.substr(end + 1);
    bytes.resize(end + 1);
  }
  Unit unit{.source = source_, .bytes = std::move(bytes), .document = document_, .first_line = line_};
  const auto lines = static_cast<std::uint64_t>(std::ranges::count(unit.bytes, '\n'));
  line_ += lines;
  document_ += lines + (unit.bytes.ends_with('\n') ? 0 : 1);
  return std::optional(std::move(unit));
}

}  // namespace dtrun::worker
