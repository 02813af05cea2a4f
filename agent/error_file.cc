#include "agent/error_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "agent/utf8.h"

namespace dtrun::agent {
namespace {

constexpr std::size_t kMaxFile = 1u << 20;
// The innermost frames, which name the fault, come last; a report travels to every node.
constexpr std::size_t kMaxText = 16u << 10;

std::string cleaned(std::string_view text) {
  std::string out;
  while (text.ends_with('\n')) text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += printable(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!out.empty()) out.pop_back();
  if (out.size() <= kMaxText) return out;
  const std::size_t line = out.find('\n', out.size() - kMaxText);
  return "..." +
         (line == std::string::npos ? printable(out.substr(out.size() - kMaxText)) : out.substr(line));
}

const nlohmann::json* member(const nlohmann::json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &*found;
}

std::string text_of(const nlohmann::json* value) {
  return value != nullptr && value->is_string() ? cleaned(value->get_ref<const std::string&>()) : "";
}

}  // namespace

WorkerError parse_error_file(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  const nlohmann::json* message = member(&document, "message");
  if (message == nullptr || !message->is_object()) return {text_of(message), ""};
  return {text_of(member(message, "message")), text_of(member(member(message, "extraInfo"), "py_callstack"))};
}

WorkerError read_error_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxFile, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_error_file(text);
}

}  // namespace dtrun::agent
