// Any bytes as what a connection begins with: how they look, and a name that is part of them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "rendezvous/server/hello.h"

using namespace dtrun::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  greeting_of(data, static_cast<int>(size));
  const auto name = server_name_in({data, size});
  if (name && std::search(data, data + size, name->begin(), name->end()) == data + size && !name->empty())
    std::abort();
  return 0;
}
