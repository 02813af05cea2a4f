#include "cmd/trace/record.h"

#include <doctest/doctest.h>

#include "tests/cmd/trace/traced.h"

namespace dtrun::cmd::record_test {
namespace {

using Kind = Operation::Kind;
using Sentences = std::vector<std::string>;

Operation step(std::int64_t number) {
  return done({.step = number, .kind = Kind::kStep}, number, number + 1);
}

}  // namespace

TEST_CASE("a trace is whole once every rank has done its steps") {
  TraceRecord record;
  CHECK_FALSE(record.has(1));
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(2);
  add_node(reply, 0, 0, {{.rank = 0, .operations = {step(4), step(5)}}});
  add_node(reply, 1, 0, {{.rank = 1, .operations = {step(4)}}});
  record.add(reply);
  CHECK(record.has(1));
  CHECK_FALSE(record.has(2));
  CHECK(record.missing(2) == Sentences{"rank 1 has only 1 step"});
  CHECK(record.missing(1).empty());
}

TEST_CASE("what is not in the record is told: ranks, silent nodes, operations that came too fast") {
  TraceRecord record;
  CHECK(record.missing(1) == Sentences{"the run had no workers yet"});
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(2);
  reply.add_silent("node1");
  add_node(reply, 0, 0, {{.rank = 0, .operations = {step(4)}, .lost = 7}});
  record.add(reply);
  record.add(reply);
  CHECK(record.missing(1) ==
        Sentences{"rank 1 has no whole step",
                  "of rank 0 14 operations came faster than they were read, and are lost",
                  "node1 did not answer for a time"});
}

TEST_CASE("a node that refuses is named") {
  TraceRecord record;
  rendezvous::v1::TraceReply reply;
  reply.add_nodes()->mutable_part()->set_refusal("another is under way");
  reply.mutable_nodes(0)->set_host("node3");
  record.add(reply);
  CHECK(record.refusal() == "node3: another is under way");
}

TEST_CASE("times of one node are exact, and of two they are as wrong as both offsets may be") {
  TraceRecord record;
  rendezvous::v1::TraceReply reply;
  add_node(reply, 0, 0, {});
  record.add(reply);
  CHECK(record.clock_error() == 0);
  add_node(reply, 1, 500'000'000, {});
  record.add(reply);
  CHECK(record.offsets().at(1).to_coordinator == -500'000'000);
  CHECK(record.clock_error() == 2000);
}

TEST_CASE("whatever a node sends is taken") {
  TraceRecord record;
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(-5);
  auto* worker = reply.add_nodes()->mutable_part()->add_workers();
  for (const std::int64_t number : {1, -2, 99, 77, -1, 1 << 30, 0, 3, -4}) worker->add_operations(number);
  record.add(reply);
  CHECK(record.ranks().at(0).empty());  // one number short
  worker->add_operations(-9);
  worker->set_rank(-3);
  record.add(reply);
  worker->set_rank(1);
  record.add(reply);
  REQUIRE(record.ranks().at(1).size() == 1);
  const Operation& one = record.ranks().at(1)[0].operation;
  CHECK(one.kind == Kind::kMessage);
  CHECK(one.state == Operation::State::kBroken);
  CHECK(one.ended == one.began);
}

}  // namespace dtrun::cmd::record_test
