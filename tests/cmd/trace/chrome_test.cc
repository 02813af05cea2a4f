#include "cmd/trace/chrome.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/cmd/trace/traced.h"

namespace dtrun::cmd::chrome_test {
namespace {

using Json = nlohmann::json;
using Kind = Operation::Kind;

// Two ranks on two hosts, whose clocks are 5 s apart: rank 0 sends bucket 3 to rank 1.
rendezvous::v1::TraceReply two_ranks() {
  constexpr std::int64_t kAhead = 5'000'000'000;
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(2);
  add_node(
      reply, 0, 0,
      {{.rank = 0,
        .operations = {done({.step = 6, .kind = Kind::kMath, .lane = 1}, 2'000'000, 2'400'000),
                       done({.step = 6, .kind = Kind::kSend, .bucket = 3, .round = 0}, 2'300'000, 2'300'000),
                       done({.step = 6, .kind = Kind::kStep}, 1'900'000, 3'000'000)}}});
  add_node(reply, 1, kAhead,
           {{.rank = 1,
             .operations = {done({.step = 6, .kind = Kind::kReceive, .bucket = 3, .round = 0, .peer = 0},
                                 kAhead + 2'100'000, kAhead + 2'350'000)},
             .pid = 200}});
  return reply;
}

Json events_of(const rendezvous::v1::TraceReply& reply) {
  TraceRecord record;
  record.add(reply);
  return Json::parse(chrome_json(record, "run", 1)).at("traceEvents");
}

// Those with this phase, and with this name if one is given.
std::vector<Json> find(const Json& events, const std::string& phase, const std::string& name = "") {
  std::vector<Json> found;
  for (const Json& event : events)
    if (event.at("ph") == phase && (name.empty() || event.at("name") == name)) found.push_back(event);
  return found;
}

}  // namespace

TEST_CASE("all ranks are on one clock, each with its lanes, in microseconds from the first span") {
  const Json events = events_of(two_ranks());
  const auto step = find(events, "X", "step 7"), math = find(events, "X", "math"),
             receive = find(events, "X", "receive bucket 3 of rank 0");
  REQUIRE(step.size() == 1);
  CHECK(step[0]["ts"] == 0);
  CHECK(step[0]["dur"] == 1100);
  CHECK(step[0]["pid"] == 0);
  REQUIRE(math.size() == 1);
  CHECK(math[0]["ts"] == 100);
  // For Perfetto a process's main thread has its number, and no two threads have the same.
  CHECK(math[0]["tid"] == 10'002);
  std::map<int, int> ranks;
  for (const Json& name : find(events, "M", "thread_name")) {
    const int rank = name["pid"], thread = name["tid"];
    CHECK(ranks.try_emplace(thread, rank).first->second == rank);
    CHECK((name["args"]["name"] == "steps") == (thread == rank));
  }
  REQUIRE(receive.size() == 1);
  CHECK(receive[0]["ts"] == 200);
  CHECK(receive[0]["dur"] == 250);
  CHECK(receive[0]["pid"] == 1);
  const auto names = find(events, "M", "process_name");
  REQUIRE(names.size() == 2);
  CHECK(names[1]["args"]["name"] == "rank 1 on node1");
}

TEST_CASE("an arrow leads from a send to its receive, within both spans") {
  const Json events = events_of(two_ranks());
  const auto from = find(events, "s"), to = find(events, "f");
  REQUIRE(from.size() == 1);
  REQUIRE(to.size() == 1);
  CHECK(from[0]["id"] == to[0]["id"]);
  CHECK(from[0]["pid"] == 0);
  CHECK(from[0]["ts"] == 400);
  CHECK(to[0]["pid"] == 1);
  CHECK(to[0]["ts"].get<double>() < 450);
  CHECK(to[0]["ts"].get<double>() > 449);
  CHECK(to[0]["bp"] == "e");
}

TEST_CASE("between ranks that share memory the arrow comes from the newest send by then") {
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(2);
  const auto send = [](int round, std::int64_t at) {
    return done({.step = 1, .kind = Kind::kSend, .bucket = 0, .round = round}, at, at);
  };
  add_node(reply, 0, 0,
           {{.rank = 0, .operations = {send(0, 1000), send(1, 5000), send(2, 9000)}},
            {.rank = 1,
             .operations = {done({.step = 1, .kind = Kind::kReceive, .bucket = 0, .peer = 0}, 2000, 6000)}}});
  const auto arrows = find(events_of(reply), "s");
  REQUIRE(arrows.size() == 1);
  CHECK(arrows[0]["ts"] == 4);
}

TEST_CASE("waits of several threads at once have a track each") {
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(1);
  const auto wait = [](int peer, std::int64_t began, std::int64_t ended) {
    return done({.kind = Kind::kReceive, .bucket = 0, .round = 0, .peer = peer}, began, ended);
  };
  add_node(reply, 0, 0,
           {{.operations = {wait(1, 0, 100), wait(2, 50, 70), wait(3, 80, 90), wait(4, 100, 120)}}});
  std::vector<int> tracks;
  for (const Json& span : find(events_of(reply), "X")) tracks.push_back(span["tid"]);
  REQUIRE(tracks.size() == 4);
  CHECK(tracks[1] == tracks[0] + 1);
  CHECK(tracks[2] == tracks[1]);
  CHECK(tracks[3] == tracks[0]);
}

TEST_CASE("a worker that was killed has an end, and the next one and its generation a begin") {
  rendezvous::v1::TraceReply reply;
  reply.set_world_size(1);
  Operation stood =
      done({.kind = Kind::kReceive, .state = Operation::State::kWaits, .bucket = 2, .round = 0, .peer = 1},
           3000, 0);
  add_node(reply, 0, 0, {{.operations = {done({.kind = Kind::kStep}, 1000, 5000), stood}, .pid = 100}});
  add_node(reply, 0, 0,
           {{.operations = {done({.generation = 2, .kind = Kind::kStep}, 90'000, 95'000)}, .pid = 101}});
  const Json events = events_of(reply);
  const auto waits = find(events, "X", "receive bucket 2 of rank 1");
  REQUIRE(waits.size() == 1);
  CHECK(waits[0]["dur"] == 2);
  CHECK(waits[0]["args"]["state"] == "its end was not seen");
  const auto gone = find(events, "i", "last of process 100"), next = find(events, "i", "generation 2");
  REQUIRE(gone.size() == 1);
  CHECK(gone[0]["ts"] == 4);
  REQUIRE(next.size() == 1);
  CHECK(next[0]["ts"] == 89);
}

TEST_CASE("the file says by how much its clocks may be wrong, and what is missing") {
  TraceRecord record;
  record.add(two_ranks());
  const Json file = Json::parse(chrome_json(record, "mnist", 1));
  CHECK(file["otherData"]["run_id"] == "mnist");
  CHECK(file["otherData"]["clock_error_us"] == 2);
  CHECK(file["otherData"]["missing"] == Json{"rank 1 has no whole step"});
  const Json nothing = Json::parse(chrome_json(TraceRecord(), "mnist", 1));
  CHECK(nothing["traceEvents"].empty());
}

}  // namespace dtrun::cmd::chrome_test
