#include "rendezvous/wire/election.h"

#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "proto/wire/fields.h"
#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

DTRUN_WIRE(election::RecordVersion, v1::RecordVersion, term, version)

// An ask of a newer dtrun counts as a probe, which binds no voter.
election::VoteRequest::Kind kind_of(int wire) {
  return v1::VoteRequest::Kind_IsValid(wire) ? static_cast<election::VoteRequest::Kind>(wire)
                                             : election::VoteRequest::kPreVote;
}

}  // namespace

DTRUN_WIRE(election::Record, v1::ElectionRecord, record_version, text)

DTRUN_FIELDS(election::VoteRequest, v1::VoteRequest, kind, term, sent_at, serves, record)

election::VoteRequest from_wire(const v1::VoteRequest& wire) {
  election::VoteRequest ask;
  read_fields(wire, &ask);
  ask.kind = kind_of(wire.kind());
  return ask;
}

void to_wire(const election::VoteRequest& ask, v1::VoteRequest* wire) { write_fields(ask, wire); }

DTRUN_FIELDS(election::VoteReply, v1::VoteReply, kind, term, sent_at, granted, newest, record_version, record)

election::VoteReply from_wire(const v1::VoteReply& wire) {
  election::VoteReply answer;
  read_fields(wire, &answer);
  answer.kind = kind_of(wire.kind());
  return answer;
}

void to_wire(const election::VoteReply& answer, v1::VoteReply* wire) { write_fields(answer, wire); }

DTRUN_FIELDS(RunRecord, v1::RunsRecord::Run, run_id, generation, hosts, leader, missing, changes, written)

std::string text_of_runs(const std::vector<RunRecord>& runs) {
  v1::RunsRecord record;
  for (const RunRecord& run : runs) {
    v1::RunsRecord::Run* one = record.add_runs();
    write_fields(run, one);
    if (run.end) to_wire(*run.end, one->mutable_end());
  }
  return record.SerializeAsString();
}

std::string merged_runs(const std::string& one, const std::string& other) {
  std::map<std::pair<std::string, bool>, RunRecord> merged;  // by run id, at work and ended
  for (const std::string& text : {one, other})
    for (const RunRecord& run : runs_from_text(text)) {
      RunRecord& known = merged[{run.run_id, run.end != nullptr}];
      if (std::tie(run.generation, run.changes) >= std::tie(known.generation, known.changes)) known = run;
    }
  std::vector<RunRecord> runs;
  for (const auto& [name, run] : merged) runs.push_back(run);
  return text_of_runs(runs);
}

std::vector<RunRecord> runs_from_text(const std::string& text) {
  v1::RunsRecord record;
  std::vector<RunRecord> runs;
  if (!record.ParseFromString(text)) return runs;
  for (const v1::RunsRecord::Run& run : record.runs()) {
    read_fields(run, &runs.emplace_back());
    if (run.has_end()) runs.back().end = std::make_shared<const JobEnd>(from_wire(run.end()));
  }
  return runs;
}

}  // namespace dtrun::rendezvous
