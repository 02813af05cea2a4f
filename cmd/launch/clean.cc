#include "cmd/launch/clean.h"

#include <algorithm>
#include <utility>

#include "proto/core/colour.h"
#include "proto/core/utf8.h"

namespace dtrun::cmd {
namespace {

// `change(line)` for each line, with their newlines.
template <typename Change>
std::string each_line(std::string_view text, Change change) {
  std::string out;
  for (bool more = true; more;) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    more = end < text.size();
    out += change(text.substr(0, end));
    if (more) out += '\n';
    text.remove_prefix(end + (more ? 1 : 0));
  }
  return out;
}

template <typename Texts>
void clean_all(Texts* texts) {
  for (std::string& text : *texts) text = clean_lines(text);
}

}  // namespace

void clean(launch::FromHost* message) {
  if (message->has_refused()) {
    std::string& why = *message->mutable_refused()->mutable_why();
    why = clean_lines(why);
  }
  if (message->has_said()) {
    std::string& text = *message->mutable_said()->mutable_text();
    text = each_line(text, painted_line);
  }
  if (message->has_bar()) {
    std::string& text = *message->mutable_bar()->mutable_text();
    text = clean_lines(text);
  }
  if (message->has_planned()) {
    launch::Planned& planned = *message->mutable_planned();
    for (std::string* text : {planned.mutable_summary(), planned.mutable_name()}) *text = clean_lines(*text);
    clean_all(planned.mutable_notices());
    clean_all(planned.mutable_addresses());
  }
  if (message->has_seen()) {
    for (launch::ProbeResult& result : *message->mutable_seen()->mutable_results()) {
      for (std::string* text : {result.mutable_address(), result.mutable_from()}) *text = clean_lines(*text);
      clean_all(result.mutable_why_not());
    }
  }
}

std::string clean_lines(std::string_view text) { return each_line(text, printable); }

std::string with_indent(std::string_view text) {
  bool is_first = true;
  return each_line(text, [&](std::string_view line) {
    const bool needs = !std::exchange(is_first, false) && !line.empty() && !line.starts_with(' ');
    return (needs ? "  " : "") + std::string(line);
  });
}

}  // namespace dtrun::cmd
