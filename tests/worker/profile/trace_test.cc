// Traces, as the tools that show them want them.
#include "worker/profile/trace.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "worker/model/builder.h"

using namespace dtrun::worker;
using Json = nlohmann::json;

namespace {

std::vector<Json> events_of(const Json& trace, const char* phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

// Nodes: 0 a linear layer, 1 a ReLU, 2 the same linear layer again, 3 the logits, 4 the loss.
Program chain() {
  ProgramBuilder builder({.shape = {1, 1, 16}, .classes = 4});
  const Value hidden = builder.relu(builder.linear(builder.input(), "a", 16));
  return builder.finish(builder.linear(builder.linear(hidden, "b", 16), "head", 4));
}

}  // namespace

TEST_CASE("the trace of a device has a named track for each stream, one of the steps, and spans in order") {
  const TimedOp matmul{.kind = {"Linear 16 -> 16", "forward"}, .node = 2, .cost = {.flops = 8}};
  const TimedOp update{.kind = {"AdamW", ""}, .node = -1, .cost = {}};
  const OpTimes times{
      .ops = {matmul, update},
      .streams = {"lane", "side 1"},
      // Told in another order than that in which they began; the second step has one operation.
      .times = {{.op = 0, .stream = 1, .begin = 0.002, .end = 0.003},
                {.op = 1, .stream = 0, .begin = 0.001, .end = 0.004},
                {.op = 0, .stream = 0, .begin = 0.010, .end = 0.0100005}}};
  const std::vector<std::size_t> steps{2, 3};
  const Json trace = Json::parse(chrome_trace(chain(), times, steps));
  std::map<int, std::string> tracks;
  for (const Json& event : events_of(trace, "M"))
    if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
  CHECK(tracks == std::map<int, std::string>{{0, "steps"}, {1, "lane"}, {2, "side 1"}});
  const auto spans = events_of(trace, "X");
  std::vector<std::string> names;
  double last = 0;
  for (const Json& span : spans) {
    names.push_back(span["name"]);
    CHECK(span["ts"] >= last);
    CHECK(span["dur"] >= 0);
    last = span["ts"];
  }
  CHECK(names == std::vector<std::string>{"step 1", "AdamW", "Linear 16 -> 16, forward", "step 2",
                                          "Linear 16 -> 16, forward"});
  CHECK(spans[0]["ts"] == 1000);
  CHECK(spans[0]["dur"] == 3000);
  CHECK(spans[2]["tid"] == 2);
  CHECK(spans[2]["args"]["parameter"] == "b.weight");
  CHECK(spans[2]["args"]["flops"] == 8);
  CHECK(spans[4]["dur"] == 0.5);
}
