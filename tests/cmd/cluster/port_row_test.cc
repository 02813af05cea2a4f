#include "cmd/cluster/port_row.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>

namespace dtrun::port_row_test {

using namespace dtrun::cmd;

TEST_CASE("a row lies below the ports of outgoing connections, and beside the usual ones") {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{2047}, std::uint64_t{4711} * 31,
                                     std::numeric_limits<std::uint64_t>::max()}) {
    const auto row = port_row(number);
    CHECK(row.size() == 8);
    CHECK(row.front() >= 1024);
    CHECK(row.back() < 29400);
    for (std::size_t i = 1; i < row.size(); ++i) CHECK(row[i] == row[i - 1] + 1);
  }
}

TEST_CASE("neighbouring jobs and steps share no port") {
  std::set<int> seen;
  for (std::uint64_t job = 1000; job < 1010; ++job)
    for (std::uint64_t step = 0; step < 5; ++step)
      for (const int port : port_row(job * 31 + step)) CHECK(seen.insert(port).second);
}

TEST_CASE("a name's row is the same on every host, and names are spread") {
  CHECK(port_row("mpi-1234") == port_row(std::string_view("mpi-1234")));
  CHECK(port_row("").front() == 10240 + 8 * 1985);
  std::set<int> rows;
  for (int i = 0; i < 1000; ++i) rows.insert(port_row("job-" + std::to_string(i)).front());
  CHECK(rows.size() > 700);
}

}  // namespace dtrun::port_row_test
