#include "rendezvous/http/process_facts.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <ctime>

namespace dtrun::rendezvous::process_facts_test {

TEST_CASE("the kernel's lines on a process are read, whatever its name") {
  const std::string stat =
      "4711 (a) b) S 1 4711 4711 0 -1 4194560 1 0 2 0 150 50 0 0 20 0 7 0 12345 8192000 300 "
      "18446744073709551615";
  const ProcessFacts facts = process_facts_in(stat, "cpu 1 2\nbtime 1000\nprocesses 5\n", 100, 4096);
  CHECK(facts.cpu_seconds == 2);
  CHECK(facts.threads == 7);
  CHECK(facts.start_time == 1123.45);
  CHECK(facts.virtual_bytes == 8192000);
  CHECK(facts.resident_bytes == 300 * 4096);
}

TEST_CASE("lines of any other kind tell nothing, and harm nobody") {
  for (const char* text : {"", ")", "7 (x", "7 (x) S", "btime", "btime x"}) {
    const ProcessFacts facts = process_facts_in(text, text, 100, 4096);
    CHECK(facts.cpu_seconds == 0);
    CHECK(facts.start_time == 0);
  }
}

TEST_CASE("this process is told as it is") {
  const ProcessFacts before = read_process_facts();
  const int more = dup(0);
  const ProcessFacts facts = read_process_facts();
  CHECK(facts.open_files == before.open_files + 1);
  CHECK(facts.most_files >= facts.open_files);
  CHECK(facts.threads >= 1);
  CHECK(facts.resident_bytes > 1e5);
  CHECK(facts.virtual_bytes > facts.resident_bytes);
  const auto now = static_cast<double>(std::time(nullptr));
  CHECK(facts.start_time <= now + 1);
  CHECK(facts.start_time > now - 600);
  close(more);
}

}  // namespace dtrun::rendezvous::process_facts_test
