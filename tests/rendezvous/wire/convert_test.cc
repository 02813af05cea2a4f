// A message arrives as it was sent: every field of every message gets a value of its own, becomes a struct
// and a message again.
#include "rendezvous/wire/convert.h"

#include <doctest/doctest.h>
#include <google/protobuf/message.h>

#include <string>

#include "proto/wire/training.h"
#include "rendezvous/wire/election.h"

namespace dtrun::rendezvous::convert_test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Sets each field, at any depth, to a value that no other one has. A flag has but two: it gets bit `round` of
// its number, so that over all rounds no two flags are equal.
class Filler {
 public:
  explicit Filler(int round) : round_(round) {}

  void fill(Message* message) {
    const auto* fields = message->GetDescriptor();
    for (int i = 0; i < fields->field_count(); ++i) {
      const FieldDescriptor* field = fields->field(i);
      if (field->is_repeated())
        add(message, field);
      else
        set(message, field);
    }
  }

 private:
  void set(Message* message, const FieldDescriptor* field) {
    const auto* reflection = message->GetReflection();
    ++value_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(message, field, value_);
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetInt64(message, field, value_);
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(message, field, static_cast<std::uint64_t>(value_));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(message, field, value_ + 0.5);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->SetBool(message, field, (field->number() >> round_ & 1) != 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection->SetEnumValue(message, field, field->enum_type()->value_count() - 1);
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetString(message, field, field->name() + std::to_string(value_));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return fill(reflection->MutableMessage(message, field));
      default:
        FAIL("no value for the type of ", field->full_name());
    }
  }

  void add(Message* message, const FieldDescriptor* field) {
    const auto* reflection = message->GetReflection();
    for (int n = 0; n < 2; ++n) {
      ++value_;
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          reflection->AddInt32(message, field, value_);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          reflection->AddInt64(message, field, value_);
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          reflection->AddDouble(message, field, value_ + 0.5);
          break;
        case FieldDescriptor::CPPTYPE_STRING:
          reflection->AddString(message, field, field->name() + std::to_string(value_));
          break;
        case FieldDescriptor::CPPTYPE_MESSAGE:
          fill(reflection->AddMessage(message, field));
          break;
        default:
          FAIL("no value for the type of ", field->full_name());
      }
    }
  }

  const int round_;
  int value_ = 0;
};

// How many fields an aggregate has, its base being one: as many as it can be made of. Never run.
struct Anything {
  template <typename T>
  operator T&() const {
    std::terminate();
  }
};
template <typename T, typename... Fields>
constexpr int fields_of() {
  if constexpr (requires { T{Fields()..., Anything()}; })
    return fields_of<T, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

constexpr int kRounds = 5;  // numbers of flags are below 1 << kRounds

// `fields`: the struct's number of fields. A field that only the struct has would be lost on the way, and
// nothing else tells.
template <typename Wire, typename FromWire>
void check_round_trip(int fields, FromWire from) {
  CAPTURE(Wire::descriptor()->full_name());
  CHECK(fields == Wire::descriptor()->field_count());
  for (int round = 0; round < kRounds; ++round) {
    Wire said, heard;
    Filler(round).fill(&said);
    to_wire(from(said), &heard);
    CHECK(heard.DebugString() == said.DebugString());
  }
  Wire nothing, again;
  to_wire(from(Wire()), &again);
  to_wire(from(again), &nothing);
  CHECK(nothing.DebugString() == again.DebugString());
}

template <typename Wire>
void check_round_trip() {
  using Struct = decltype(from_wire(Wire()));
  check_round_trip<Wire>(fields_of<Struct>(), [](const Wire& wire) { return from_wire(wire); });
}

TEST_CASE("every field of every message is a field of its struct, there and back") {
  check_round_trip<v1::WorkerOutcome>();
  check_round_trip<v1::CrashHistory>();
  check_round_trip<training::DeviceMemory>();
  check_round_trip<training::Progress>();
  check_round_trip<training::Completion>();
  check_round_trip<training::StepTimes>();
  check_round_trip<training::StepDurations>();
  check_round_trip<training::Checkpoints>();
  check_round_trip<v1::FailureCounts>();
  check_round_trip<v1::WorkerUsage>();
  check_round_trip<v1::GpuUse>();
  check_round_trip<v1::WorkerReport>();
  check_round_trip<v1::Verdict>();
  check_round_trip<v1::Join>();
  check_round_trip<v1::Heartbeat>();
  check_round_trip<v1::Stopped>();
  check_round_trip<v1::JoinAck>();
  check_round_trip<v1::Rejected>();
  check_round_trip<v1::WaitStatus>();
  check_round_trip<v1::Node>();
  check_round_trip<v1::StopOrder>();
  check_round_trip<v1::Hang>();
  check_round_trip<v1::JobEnd>();
  check_round_trip<v1::ElectionRecord>();
  check_round_trip<v1::VoteRequest>();
  check_round_trip<v1::VoteReply>();
}

TEST_CASE("what later coordinators have to know is read as it was written") {
  auto end = std::make_shared<JobEnd>();
  end->exit_code = 3;
  end->reason = "because";
  const News left{.kind = News::kLeft, .host = "n1", .text = "n1 left", .age = 30};
  const std::vector<RunRecord> runs{{.run_id = "a",
                                     .generation = 4,
                                     .hosts = {"n0", "n1"},
                                     .leader = "n0",
                                     .missing = {left},
                                     .changes = 5,
                                     .written = 1234},
                                    {.run_id = "b", .generation = 9, .end = end}};
  const std::vector<RunRecord> read = runs_from_text(text_of_runs(runs));
  REQUIRE(read.size() == 2);
  CHECK(read[0].run_id == "a");
  CHECK(read[0].generation == 4);
  CHECK(read[0].end == nullptr);
  CHECK(same_facts(read[0], runs[0]));
  CHECK(read[0].missing == runs[0].missing);
  CHECK(read[0].written == 1234);
  CHECK(read[1].generation == 9);
  REQUIRE(read[1].end != nullptr);
  CHECK(*read[1].end == *end);
  CHECK(runs_from_text("").empty());

  const std::string later =
      text_of_runs({{.run_id = "a", .generation = 7}, {.run_id = "b", .generation = 2}});
  for (const std::string& merged :
       {merged_runs(text_of_runs(runs), later), merged_runs(later, text_of_runs(runs))}) {
    const std::vector<RunRecord> all = runs_from_text(merged);
    REQUIRE(all.size() == 3);
    CHECK(all[0].generation == 7);  // a
    CHECK(all[1].generation == 2);  // the next run of b's name
    CHECK(all[1].end == nullptr);
    CHECK(all[2].generation == 9);
    CHECK(all[2].end != nullptr);
  }
}

TEST_CASE("of two records of one generation the one that saw more of the nodes counts") {
  const auto record = [](std::int64_t generation, std::int64_t changes) {
    return text_of_runs({{.run_id = "a", .generation = generation, .changes = changes}});
  };
  const auto merged = [&](const std::string& one, const std::string& other) {
    return runs_from_text(merged_runs(one, other)).at(0);
  };
  CHECK(merged(record(4, 5), record(4, 6)).changes == 6);
  CHECK(merged(record(4, 6), record(4, 5)).changes == 6);
  CHECK(merged(record(5, 1), record(4, 6)).changes == 1);
  CHECK(merged(record(4, 6), record(5, 1)).changes == 1);
}

TEST_CASE("an assignment too, but for its generation, which stands beside the message") {
  const int fields = fields_of<GenerationFacts>() - 1 + fields_of<Assignment>() - 1;
  check_round_trip<v1::Assignment>(fields, [](const v1::Assignment& wire) { return from_wire(7, wire); });
  CHECK(from_wire(7, v1::Assignment()).generation == 7);
}

TEST_CASE("a member is told of its own node and of the number of the others") {
  auto membership = std::make_shared<Membership>();
  membership->generation = 3;
  membership->world_size = 6;
  membership->reason = "because";
  membership->nodes = {{"a", "10.0.0.1", 4, 0, "id-a"}, {"b", "10.0.0.2", 2, 4, "id-b"}};
  const v1::FromCoordinator message = to_message({5, 3, Assigned{1, membership}});
  CHECK(message.generation() == 3);
  const Assignment told = from_wire(message.generation(), message.assignment());
  CHECK(static_cast<const GenerationFacts&>(told) == *membership);
  CHECK(told.group_rank == 1);
  CHECK(told.node_count == 2);
  CHECK(told.node == membership->nodes[1]);
}

TEST_CASE("all that an agent says is heard as what it was") {
  const auto heard = [](auto fill) {
    v1::FromAgent message;
    message.set_generation(9);
    fill(&message);
    Event event = to_event(4, message, "10.0.0.9");
    CHECK(event.from == 4);
    CHECK(event.generation == 9);
    return event.body;
  };
  const auto join = [](const std::string& address) {
    return [address](v1::FromAgent* message) { message->mutable_join()->set_address(address); };
  };
  CHECK(std::get<Join>(heard(join("10.0.0.1"))).address == "10.0.0.1");
  CHECK(std::get<Join>(heard(join(""))).address == "10.0.0.9");  // the connection's
  const auto failure = heard([](v1::FromAgent* m) { m->mutable_failure()->mutable_outcome()->set_rank(3); });
  CHECK(std::get<Failure>(failure).outcome.rank == 3);
  const auto stopped = heard([](v1::FromAgent* m) { m->mutable_stopped()->add_outcomes()->set_rank(2); });
  CHECK(std::get<Stopped>(stopped).outcomes.at(0).rank == 2);
  CHECK(std::holds_alternative<Finished>(heard([](v1::FromAgent* m) { m->mutable_finished(); })));
  CHECK(std::get<Leave>(heard([](v1::FromAgent* m) { m->mutable_leave()->set_signal(15); })).signal == 15);
  CHECK(std::get<Leave>(heard([](v1::FromAgent* m) { m->mutable_leave()->set_soon(true); })).soon);
  CHECK(std::get<Leave>(heard([](v1::FromAgent* m) { m->mutable_leave()->set_replaced(true); })).replaced);
  CHECK(std::get<Heartbeat>(heard([](v1::FromAgent* m) { m->mutable_heartbeat()->add_pids(8); })).pids ==
        std::vector<int>{8});
  CHECK(std::holds_alternative<Heartbeat>(heard([](v1::FromAgent*) {})));
}

TEST_CASE("the address of a peer as gRPC writes it") {
  CHECK(address_of_peer("ipv4:10.0.0.7:41234") == "10.0.0.7");
  CHECK(address_of_peer("ipv6:%5Bfd00::7%5D:41234") == "fd00::7");
  CHECK(address_of_peer("ipv6:[::ffff:10.0.0.7]:41234") == "10.0.0.7");
  CHECK(address_of_peer("unix:/tmp/x") == "");
}

}  // namespace
}  // namespace dtrun::rendezvous::convert_test
