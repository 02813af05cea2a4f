// The file in which a worker may say why it failed (TORCHELASTIC_ERROR_FILE), in the format of
// torch.distributed.elastic's @record:
//   {"message": "text"}
//   {"message": {"message": "text", "extraInfo": {"py_callstack": "Traceback...", "timestamp":
//   "1700000000"}}}
#pragma once

#include <filesystem>
#include <string>

namespace dtrun::agent {

struct WorkerError {
  std::string message;    // one or more lines, fit for a terminal
  std::string traceback;  // fit for a terminal, too; its end if it is very long
  double written_at = 0;  // seconds since 1970; 0: a text, or no such document
};

// Both empty for a text that is no such document.
WorkerError parse_error_file(const std::string& text);

// The same of a file, with its time; both empty if there is none.
WorkerError read_error_file(const std::filesystem::path& file);

}  // namespace dtrun::agent
