// Messages from the network before they are used.
#include "rendezvous/wire/intake.h"

#include <doctest/doctest.h>

#include "rendezvous/wire/convert.h"

namespace dtrun::rendezvous::intake_test {
namespace {

TEST_CASE("no text keeps a control character, and a newline only where lines belong") {
  const std::string hostile =
      "\x1b[2Ja\xc2\x9b"
      "1m\nb\x7f";
  v1::FromAgent message;
  v1::Join& join = *message.mutable_join();
  for (std::string* text : {join.mutable_run_id(), join.mutable_member_id(), join.mutable_host(),
                            join.mutable_address(), join.mutable_device(), join.mutable_gpu(),
                            join.mutable_topology(), join.add_command(), join.mutable_job()})
    *text = hostile;
  make_printable(&message);
  const std::string line = "a?1m b?", lines = "a?1m\nb?";
  for (const std::string& text : {join.run_id(), join.member_id(), join.host(), join.address(), join.device(),
                                  join.gpu(), join.topology(), join.command(0)})
    CHECK(text == line);
  CHECK(join.job() == lines);

  v1::WorkerOutcome& outcome = *message.mutable_stopped()->add_outcomes();
  outcome.set_host(hostile);
  outcome.set_error(hostile);
  outcome.set_traceback(hostile);
  outcome.add_stderr_tail(hostile);
  make_printable(&message);
  CHECK(outcome.host() == line);
  for (const std::string& text : {outcome.error(), outcome.traceback(), outcome.stderr_tail(0)})
    CHECK(text == lines);
}

TEST_CASE("text that is fine stays as it is") {
  v1::FromAgent message;
  message.mutable_join()->set_host("knoten-ä");
  message.mutable_join()->set_job("{\n\t\"a\": \"ü\"\n}");
  const std::string before = message.SerializeAsString();
  make_printable(&message);
  CHECK(message.SerializeAsString() == before);
}

TEST_CASE("a Join's texts and a message have a length that is enough") {
  v1::FromAgent message;
  message.mutable_join()->set_host(std::string(kMostOfText, 'x'));
  message.mutable_join()->set_job(std::string(64u << 10, 'x'));
  CHECK(!too_long(message));
  message.mutable_join()->set_host(std::string(kMostOfText + 1, 'x'));
  REQUIRE(too_long(message));
  CHECK(too_long(message)->find("a host of 1025 bytes") != std::string::npos);
  message.mutable_join()->set_host("x");
  message.mutable_join()->set_job(std::string(kMostOfMessage - 20, 'x'));
  CHECK(!too_long(message));
  message.mutable_join()->set_job(std::string(kMostOfMessage, 'x'));
  CHECK(too_long(message));
  v1::FromAgent beat;
  for (int i = 0; i < 100'000; ++i) beat.mutable_heartbeat()->add_pids(1'000'000);
  CHECK(too_long(beat));
}

TEST_CASE("what a node's workers wrote at their end fits into a message, the last lines of each") {
  Stopped stopped;
  for (int rank = 0; rank < 1000; ++rank) {
    WorkerOutcome outcome;
    outcome.rank = rank;
    outcome.traceback = std::string(16u << 10, 't') + "the end";
    outcome.error = std::string(16u << 10, 'e');
    for (int line = 0; line < 20; ++line)
      outcome.stderr_tail.push_back(std::string(400, 'l') + std::to_string(line));
    stopped.outcomes.push_back(outcome);
  }
  v1::Stopped wire;
  to_wire(stopped, &wire);
  REQUIRE(wire.outcomes_size() == 1000);
  CHECK(wire.ByteSizeLong() < 4u << 20);
  CHECK(wire.outcomes(999).traceback().ends_with("the end"));
  CHECK(wire.outcomes(999).stderr_tail().rbegin()->ends_with("19"));

  stopped.outcomes.resize(16);  // so few are not cut
  v1::Stopped whole;
  to_wire(stopped, &whole);
  CHECK(whole.outcomes(15).traceback() == stopped.outcomes[15].traceback);
  CHECK(whole.outcomes(15).stderr_tail_size() == 20);
}

}  // namespace
}  // namespace dtrun::rendezvous::intake_test
