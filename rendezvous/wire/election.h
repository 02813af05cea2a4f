// The messages of hosts that may lead, and the record of the runs as text. Total, as convert.h.
#pragma once

#include <string>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/election/election.h"
#include "rendezvous/core/run/runs.h"

namespace dtrun::rendezvous {

election::Record from_wire(const v1::ElectionRecord& wire);
void to_wire(const election::Record& record, v1::ElectionRecord* wire);

election::VoteRequest from_wire(const v1::VoteRequest& wire);
void to_wire(const election::VoteRequest& ask, v1::VoteRequest* wire);

election::VoteReply from_wire(const v1::VoteReply& wire);
void to_wire(const election::VoteReply& answer, v1::VoteReply* wire);

// Numbers of generations only grow, and ends only come: the highest number of each run, and the last end.
std::string merged_runs(const std::string& one, const std::string& other);

std::string text_of_runs(const std::vector<RunRecord>& runs);
// Empty if the text is not a record.
std::vector<RunRecord> runs_from_text(const std::string& text);

}  // namespace dtrun::rendezvous
