#include "agent/process/error_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "proto/base/text_in.h"
#include "proto/core/text.h"
#include "proto/core/utf8.h"
#include "proto/json/json.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kMaxFile = 1u << 20;

const Json* member(const Json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &*found;
}

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? printable_lines(value->get_ref<const std::string&>()) : "";
}

// The code unit of an escape such as \ud83d at the front of `text`, -1 if there is none.
int code_unit(std::string_view text) {
  int unit = -1;
  if (text.size() < 6 || !text.starts_with("\\u")) return -1;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
  return error == std::errc() && end == text.data() + 6 ? unit : -1;
}

bool is_high(int unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool is_low(int unit) { return unit >= 0xdc00 && unit < 0xe000; }

// Python writes a byte of a file name that is not UTF-8 as half a surrogate pair, which other JSON parsers
// refuse.
std::string without_lone_surrogates(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const int unit = code_unit(text);
    const bool pair = is_high(unit) && is_low(code_unit(text.substr(6)));
    const std::size_t length = pair ? 12 : unit >= 0 ? 6 : text.starts_with('\\') ? 2 : 1;
    const bool lone = !pair && (is_high(unit) || is_low(unit));
    out += lone ? std::string_view("\\ufffd") : text.substr(0, length);
    text.remove_prefix(std::min(length, text.size()));
  }
  return out;
}

}  // namespace

WorkerError parse_error_file(const std::string& text) {
  auto document = parse_json(text);
  if (document.is_discarded()) document = parse_json(without_lone_surrogates(text));
  const Json* message = member(&document, "message");
  if (message == nullptr || !message->is_object()) return {text_of(message), ""};
  return {text_of(member(message, "message")), text_of(member(member(message, "extraInfo"), "py_callstack"))};
}

WorkerError read_error_file(const std::filesystem::path& file) {
  const Result<std::string> text = read_text(file, kMaxFile);
  if (!text.ok()) return {};
  WorkerError error = parse_error_file(text.value());
  struct stat found {};
  if (!error.message.empty() && ::stat(file.c_str(), &found) == 0)
    error.written_at =
        static_cast<double>(found.st_mtim.tv_sec) + static_cast<double>(found.st_mtim.tv_nsec) * 1e-9;
  return error;
}

}  // namespace dtrun::agent
