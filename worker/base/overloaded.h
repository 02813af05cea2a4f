// One visitor of a variant from several functions.
#pragma once

namespace dtrun::worker {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace dtrun::worker
