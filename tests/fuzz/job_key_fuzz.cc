// Any bytes as a key: a status, or what says the same when it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rendezvous/identity/job_key.h"

using dtrun::rendezvous::JobKey;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto found = JobKey::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!found.ok()) {
    if (found.status().message().empty()) std::abort();
    return 0;
  }
  const auto again = JobKey::parse(found.value().text(), "fuzz");
  if (!again.ok() || again.value().text() != found.value().text()) std::abort();
  if (again.value().fingerprint() != found.value().fingerprint()) std::abort();
  return 0;
}
