#include "cmd/job_files/template.h"

#include <doctest/doctest.h>

namespace dtrun::template_test {

using dtrun::cmd::fill_in;

TEST_CASE("places get their values, and any other @ stays") {
  CHECK(fill_in("a @x@ b @x@@y@\nuser@host @z@\n", {{"x", "1"}, {"y", "2"}}) == "a 1 b 12\nuser@host @z@\n");
  CHECK(fill_in("no end of line: @x@", {{"x", "@x@"}}) == "no end of line: @x@\n");
  CHECK(fill_in("", {{"x", "1"}}).empty());
}

TEST_CASE("a line whose value is empty is left out") {
  CHECK(fill_in("one\n  limit: @x@\n\nthree\n", {{"x", ""}}) == "one\n\nthree\n");
}

TEST_CASE("each line of a value is indented as its place") {
  CHECK(fill_in("  list:\n    @x@\n", {{"x", "- a\n- b"}}) == "  list:\n    - a\n    - b\n");
}

}  // namespace dtrun::template_test
