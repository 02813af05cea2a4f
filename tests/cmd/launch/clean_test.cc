// Output of hosts is made safe for the launching terminal.
#include "cmd/launch/clean.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::clean_test {
namespace {

// A title, a clipboard, a cleared screen; as C0 and as C1.
const std::string kHostile = "a\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\u009b2J\rb";

bool is_clean(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return false;
    if (c == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
  }
  return true;
}

TEST_CASE("no text of a host can move the cursor, but for a worker's") {
  launch::FromHost message;
  const auto check = [&](const std::string& text, const std::string& expected) {
    clean(&message);
    CHECK(text == expected);
    CHECK(is_clean(text));
  };
  message.mutable_refused()->set_why("first\n" + kHostile);
  check(message.refused().why(), "first\nb");
  message.mutable_bar()->set_text(kHostile + "\u0085");
  check(message.bar().text(), "b?");
  launch::Planned& planned = *message.mutable_planned();
  planned.set_summary(kHostile);
  planned.set_name("\x1b[2J");
  planned.add_notices("\x1b[31mred");
  planned.add_addresses("10.0.0.1\x07");
  check(planned.summary(), "b");
  CHECK(planned.name().empty());
  CHECK(planned.notices(0) == "red");
  CHECK(planned.addresses(0) == "10.0.0.1?");
  launch::ProbeResult& result = *message.mutable_seen()->add_results();
  result.set_address("\x1b");
  result.set_from("\x1b");
  result.add_why_not("\x1b");
  clean(&message);
  for (const std::string& text : {result.address(), result.from(), result.why_not(0)}) CHECK(text == "?");
  message.mutable_output()->set_text(kHostile);
  clean(&message);
  CHECK(message.output().text() == kHostile);
}

TEST_CASE("an agent's own colours stay, in each line by itself") {
  launch::FromHost message;
  message.mutable_said()->set_text("\x1b[1;31mred\n\x1b[36mcyan\x1b[0m\x1b[2J\n");
  clean(&message);
  CHECK(message.said().text() == "\x1b[1;31mred\x1b[0m\n\x1b[36mcyan\x1b[0m\n");
}

TEST_CASE("a line that follows another one cannot look like dtrun's own") {
  CHECK(with_indent("one") == "one");
  CHECK(with_indent("faults:\ndtrun: run job7 is over\n  more\n\n") ==
        "faults:\n  dtrun: run job7 is over\n  more\n\n");
}

}  // namespace
}  // namespace dtrun::cmd::clean_test
