#include "proto/core/lost_exits.h"

#include <algorithm>
#include <iterator>

namespace dtrun {

int exit_code_where_replaced(int exit_code) {
  const bool is_lost =
      std::find(std::begin(kLostExits), std::end(kLostExits), exit_code) != std::end(kLostExits);
  return is_lost ? 1 : exit_code;
}

}  // namespace dtrun
