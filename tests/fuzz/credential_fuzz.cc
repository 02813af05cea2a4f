// Any bytes as a key or a scoped token, and as the bytes inside a scoped token's text: a status, or what says
// the same when it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/identity/base64.h"
#include "rendezvous/identity/credential.h"

using namespace dtrun::rendezvous;

namespace {

void read_twice(std::string_view text) {
  const auto found = Credential::parse(text, "fuzz");
  if (!found.ok()) {
    if (found.status().message().empty()) std::abort();
    return;
  }
  const auto again = Credential::parse(found.value().text(), "fuzz");
  if (!again.ok() || again.value().text() != found.value().text()) std::abort();
  if (again.value().fingerprint() != found.value().fingerprint()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_twice({reinterpret_cast<const char*>(data), size});
  read_twice(std::string(ScopedToken::kPrefix) + to_base64url(data, size));
  return 0;
}
