#include "agent/health/xid_log.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/folder.h"

namespace dtrun::xid_log_test {

using namespace dtrun::agent;

TEST_CASE("only what was reported since the job began counts, and it is remembered") {
  const test::Folder folder;
  const auto file = folder / "kmsg";
  std::ofstream(file) << "4,1,1,-;NVRM: Xid (PCI:0000:5e:00): 13, pid=1\n";
  XidLog log(file);
  CHECK(log.read().empty());
  std::ofstream(file, std::ios::app) << "4,2,2,-;NVRM: Xid (PCI:0000:5e:00): 79, pid=1\n";
  REQUIRE(log.read().size() == 1);
  std::ofstream(file, std::ios::app) << "6,3,3,-;usb 1-1: new device\n";
  CHECK(log.read().size() == 1);
  CHECK(log.read()[0].number == 79);
}

TEST_CASE("a log that may not be read tells nothing") {
  XidLog log("/no/such/file");
  CHECK(log.read().empty());
}

}  // namespace dtrun::xid_log_test
