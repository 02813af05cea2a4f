// What nodes tell of their processors when they join.
#pragma once

namespace dtrun {

// Of a processor on which no worker computes.
inline constexpr char kCpuWithoutFma[] = "cpu, without fused multiply-add";

}  // namespace dtrun
