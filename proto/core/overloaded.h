// One visitor of a variant from several functions.
#pragma once

namespace dtrun {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // Clang 14 needs the guide

}  // namespace dtrun
