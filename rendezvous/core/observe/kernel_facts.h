// What the kernel's facts say of a rank: who keeps it from running, in words, and which rank is kept back
// alone where a program tells nothing of its steps. Pure.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/observe/window.h"

namespace dtrun::rendezvous {

struct Explanation {
  std::string word, text;  // for programs, for people
};

// REQUIRES: the rank was stopped, throttled, or ready to run without a CPU
Explanation stopped(const WindowPart& part);
Explanation throttled(const WindowPart& part);
Explanation shares_cores(const WindowPart& part);

// The one rank that is stopped, throttled, or whose cores another program takes, where the others are not;
// nothing if several are, or none. The loss is not known.
std::optional<Straggler> judge_kernel_facts(const Window& window);

}  // namespace dtrun::rendezvous
