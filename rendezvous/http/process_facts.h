// This process as the kernel tells of it, for /metrics.
#pragma once

#include <string>

#include "rendezvous/text/job_metrics.h"

namespace dtrun::rendezvous {

// What the kernel does not tell is 0.
ProcessFacts read_process_facts();

// The part of it that /proc/PID/stat and /proc/stat tell, by their texts. Pure.
ProcessFacts process_facts_in(const std::string& stat, const std::string& system_stat,
                              double ticks_per_second, double page_bytes);

}  // namespace dtrun::rendezvous
