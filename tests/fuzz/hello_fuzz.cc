// Any bytes as what a connection begins with: how they look, and a name that is part of them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rendezvous/server/hello.h"

using namespace dtrun::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  greeting_of(data, static_cast<int>(size));
  const auto name = server_name_in({data, size});
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  if (name && all.find(*name) == std::string_view::npos) std::abort();
  return 0;
}
