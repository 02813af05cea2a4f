#include "rendezvous/wire/election.h"

#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous {
namespace {

election::RecordVersion version_of(const v1::RecordVersion& wire) {
  return {.term = wire.term(), .version = wire.version()};
}

void set_version(const election::RecordVersion& record_version, v1::RecordVersion* wire) {
  wire->set_term(record_version.term);
  wire->set_version(record_version.version);
}

// An ask of a newer dtrun counts as a probe, which binds no voter.
election::VoteRequest::Kind kind_of(int wire) {
  return v1::VoteRequest::Kind_IsValid(wire) ? static_cast<election::VoteRequest::Kind>(wire)
                                             : election::VoteRequest::kPreVote;
}

}  // namespace

election::Record from_wire(const v1::ElectionRecord& wire) {
  return {.record_version = version_of(wire.record_version()), .text = wire.text()};
}

void to_wire(const election::Record& record, v1::ElectionRecord* wire) {
  set_version(record.record_version, wire->mutable_record_version());
  wire->set_text(record.text);
}

election::VoteRequest from_wire(const v1::VoteRequest& wire) {
  election::VoteRequest ask{
      .kind = kind_of(wire.kind()), .term = wire.term(), .sent_at = wire.sent_at(), .serves = wire.serves()};
  if (wire.has_record()) ask.record = from_wire(wire.record());
  return ask;
}

void to_wire(const election::VoteRequest& ask, v1::VoteRequest* wire) {
  wire->set_kind(static_cast<v1::VoteRequest::Kind>(ask.kind));
  wire->set_term(ask.term);
  wire->set_sent_at(ask.sent_at);
  wire->set_serves(ask.serves);
  if (ask.record) to_wire(*ask.record, wire->mutable_record());
}

election::VoteReply from_wire(const v1::VoteReply& wire) {
  election::VoteReply answer{.kind = kind_of(wire.kind()),
                             .term = wire.term(),
                             .sent_at = wire.sent_at(),
                             .granted = wire.granted(),
                             .newest = wire.newest(),
                             .record_version = version_of(wire.record_version())};
  if (wire.has_record()) answer.record = from_wire(wire.record());
  return answer;
}

void to_wire(const election::VoteReply& answer, v1::VoteReply* wire) {
  wire->set_kind(static_cast<v1::VoteRequest::Kind>(answer.kind));
  wire->set_term(answer.term);
  wire->set_sent_at(answer.sent_at);
  wire->set_granted(answer.granted);
  wire->set_newest(answer.newest);
  set_version(answer.record_version, wire->mutable_record_version());
  if (answer.record) to_wire(*answer.record, wire->mutable_record());
}

std::string text_of_runs(const std::vector<RunRecord>& runs) {
  v1::RunsRecord record;
  for (const RunRecord& run : runs) {
    v1::RunsRecord::Run* one = record.add_runs();
    one->set_run_id(run.run_id);
    one->set_generation(run.generation);
    if (run.end) to_wire(*run.end, one->mutable_end());
    for (const std::string& host : run.hosts) one->add_hosts(host);
    one->set_leader(run.leader);
    for (const News& news : run.missing) to_wire(news, one->add_missing());
    one->set_changes(run.changes);
    one->set_written_ms(run.written);
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
    runs.push_back({.run_id = run.run_id(),
                    .generation = run.generation(),
                    .end = run.has_end() ? std::make_shared<const JobEnd>(from_wire(run.end())) : nullptr,
                    .hosts = {run.hosts().begin(), run.hosts().end()},
                    .leader = run.leader(),
                    .changes = run.changes(),
                    .written = run.written_ms()});
    for (const v1::News& news : run.missing()) runs.back().missing.push_back(from_wire(news));
  }
  return runs;
}

}  // namespace dtrun::rendezvous
