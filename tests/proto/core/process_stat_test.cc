#include "proto/core/process_stat.h"

#include <doctest/doctest.h>

namespace dtrun::process_stat_test {

TEST_CASE("a process is read from its stat line, whatever its name holds") {
  const auto stat = parse_stat(
      "4711 (a) b (c) S 1 4700 28103 0 -1 4194304 101 0 7 2 30 12 5 3 20 0 6 0 1355134 3133440 408 "
      "18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 3 0 0");
  REQUIRE(stat.has_value());
  CHECK(stat->pid == 4711);
  CHECK(stat->parent == 1);
  CHECK(stat->group == 4700);
  CHECK(stat->state == 'S');
  CHECK(stat->major_faults == 7 + 2);
  CHECK(stat->cpu_ticks == 30 + 12 + 5 + 3);
  CHECK(stat->own_ticks == 30 + 12);
  CHECK(stat->threads == 6);
  CHECK(stat->start_ticks == 1355134);
  CHECK(stat->virtual_bytes == 3133440);
  CHECK(stat->resident_pages == 408);
}

TEST_CASE("what is no stat line gives nothing") {
  for (const char* text : {"", "4711", "4711 (a", "4711 )a(", "4711 (a) S 1 4700", "4711 (a) S x"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_stat(text).has_value());
  }
}

}  // namespace dtrun::process_stat_test
