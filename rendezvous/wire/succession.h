// The messages of hosts that may lead, and the record of the runs as text. Total, as convert.h.
#pragma once

#include <string>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/runs.h"
#include "rendezvous/core/succession.h"

namespace dtrun::rendezvous {

succession::Record from_wire(const v1::SuccessionRecord& wire);
void to_wire(const succession::Record& record, v1::SuccessionRecord* wire);

succession::Ask from_wire(const v1::SuccessionAsk& wire);
void to_wire(const succession::Ask& ask, v1::SuccessionAsk* wire);

succession::Answer from_wire(const v1::SuccessionAnswer& wire);
void to_wire(const succession::Answer& answer, v1::SuccessionAnswer* wire);

// Numbers of generations only grow, and ends only come: the highest number of each run, and the last end.
std::string merged_runs(const std::string& one, const std::string& other);

std::string text_of_runs(const std::vector<RunRecord>& runs);
// Empty if the text is not a record.
std::vector<RunRecord> runs_from_text(const std::string& text);

}  // namespace dtrun::rendezvous
