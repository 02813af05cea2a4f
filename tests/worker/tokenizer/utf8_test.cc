#include "worker/tokenizer/utf8.h"

#include <doctest/doctest.h>

namespace dtrun::worker::utf8_test {
namespace {

TEST_CASE("characters appear when they are whole, and what can become none as U+FFFD") {
  WholeCharacters characters;
  CHECK(characters.take("a\xe4\xb8") == "a");
  CHECK(characters.take("\xad") == "\u4e2d");
  CHECK(characters.take("\xf0\x9f") == "");
  CHECK(characters.take("\x98") == "");
  CHECK(characters.take("x") == "\ufffdx");
  CHECK(characters.take("\xff\xc3") == "\ufffd");
  CHECK(characters.finish() == "\ufffd");
  CHECK(characters.finish() == "");
}

}  // namespace
}  // namespace dtrun::worker::utf8_test
