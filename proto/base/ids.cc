#include "proto/base/ids.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "proto/core/text.h"

namespace dtrun {

std::string random_id(int bytes) {
  std::vector<unsigned char> raw(static_cast<std::size_t>(bytes));
  if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) std::abort();
  return hexadecimal(raw);
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace dtrun
