// The inputs of a preparation: text files, each a document, and .jsonl files, each line a document. They are
// read in units of about a megabyte in a fixed order, and threads encode the units in any order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/core/status.h"
#include "worker/data/input_file.h"
#include "worker/data/text_pieces.h"
#include "worker/tokenizer/tokenizer.h"

namespace dtrun::worker {

struct InputSource {
  std::filesystem::path path;
  std::uint64_t size = 0;  // bytes
  bool jsonl = false;
};

struct Inputs {
  std::vector<InputSource> sources;  // without empty files
  std::uint64_t bytes = 0;
  // True for fewer documents than 1 / val_fraction: the end of each is then for validation. Else whole
  // documents are.
  bool cut_documents = false;
};

// `paths`: files, and directories whose files text_files() lists. Looks at each file. Failures have
// EX_NOINPUT and name it.
Result<Inputs> find_inputs(const std::vector<std::string>& paths, const std::string& pattern,
                           double val_fraction);

// Whether a document is for validation, where documents are taken whole: such documents are evenly spread, so
// that they come from all sources, independently of later documents.
bool is_for_validation(std::uint64_t document, double val_fraction);

// A part of one source, encoded by itself.
struct Unit {
  std::size_t source = 0;
  std::string bytes;
  bool begins = true;            // text only: a document, or the validation's part of one, begins here
  bool val = false;              // text only
  std::uint64_t document = 0;    // lines only: the number of the first line's document
  std::uint64_t first_line = 1;  // lines only: counted from 1, as in editors
};

class UnitReader {
 public:
  // REQUIRES: the arguments outlive the reader.
  UnitReader(const Inputs& inputs, double val_fraction, const Tokenizer& tokenizer)
      : inputs_(inputs), val_fraction_(val_fraction), cutter_(tokenizer) {}

  // Nothing at the end. Failures have EX_NOINPUT and name the file.
  Result<std::optional<Unit>> next();

 private:
  struct InputSpan {
    std::uint64_t begin = 0, end = 0;
    bool val = false;
  };
  Status open();
  Result<std::optional<Unit>> next_piece();
  Result<std::optional<Unit>> next_lines();

  const Inputs& inputs_;
  const double val_fraction_;
  Encoder cutter_;
  std::size_t source_ = 0;
  std::uint64_t document_ = 0;
  std::optional<InputFile> file_;
  std::vector<InputSpan> parts_;  // of a text, still to be read; the next one last
  std::optional<TextPieces> pieces_;
  bool begins_ = true;
  std::uint64_t next_byte_ = 0, line_ = 1;  // of a .jsonl file
  std::string rest_;                        // the beginning of a line
};

}  // namespace dtrun::worker
