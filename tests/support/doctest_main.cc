// main() of every test program: doctest's own, but for cases that were skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <map>

#include "tests/support/skip.h"

namespace {

constexpr int kSkipped = 77;

std::map<std::string, std::string> skipped;  // why, by name; a case with subcases runs several times

}  // namespace

void dtrun::test::skip(const std::string& why) {
  skipped.emplace(doctest::getContextOptions()->currentTest->m_name, why);
}

// libgloo is not instrumented: a buffer's destructor there waits until nobody holds it, and the thread
// sanitizer does not see that.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:dtrun::worker::MeshBuffer::~MeshBuffer\n";
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int failed = context.run();
  for (const auto& [name, why] : skipped) std::printf("skipped: %s: %s\n", name.c_str(), why.c_str());
  return failed == 0 && !skipped.empty() ? kSkipped : failed;
}
