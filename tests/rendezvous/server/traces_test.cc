#include "rendezvous/server/traces.h"

#include <doctest/doctest.h>

#include <optional>

namespace dtrun::rendezvous::traces_test {
namespace {

// A call to two nodes.
struct Asked {
  Traces traces;
  std::optional<v1::TraceReply> told;

  Asked() {
    v1::TraceReply reply;
    reply.set_world_size(4);
    traces.begin(reply, {{3, "a"}, {4, "b"}}, 1000, [this](v1::TraceReply all) { told = std::move(all); });
  }
};

}  // namespace

TEST_CASE("a call is answered once all of its nodes have answered") {
  Asked asked;
  v1::TracePart part;
  part.set_answered_at(77);
  asked.traces.answered(3, part, 500);
  asked.traces.answered(9, part, 500);  // no node of it
  CHECK_FALSE(asked.told);
  asked.traces.answered(4, part, 600);
  REQUIRE(asked.told);
  CHECK(asked.told->world_size() == 4);
  REQUIRE(asked.told->nodes_size() == 2);
  CHECK(asked.told->nodes(1).host() == "b");
  CHECK(asked.told->nodes(1).node() == 4);
  CHECK(asked.told->nodes(1).received_at() == 600);
  CHECK(asked.told->nodes(1).part().answered_at() == 77);
  CHECK(asked.told->silent().empty());
  CHECK(asked.traces.tend(1'000'000) == kNever);
}

TEST_CASE("nodes that are gone, or that say nothing, are told of") {
  Asked gone;
  gone.traces.gone(3);
  gone.traces.answered(4, {}, 600);
  REQUIRE(gone.told);
  CHECK(gone.told->silent(0) == "a");
  Asked silent;
  silent.traces.answered(3, {}, 600);
  CHECK(silent.traces.tend(1000) == 1000 + Traces::kPatience);
  CHECK_FALSE(silent.told);
  CHECK(silent.traces.tend(1000 + Traces::kPatience) == kNever);
  REQUIRE(silent.told);
  CHECK(silent.told->silent(0) == "b");
}

TEST_CASE("a run without nodes is answered at once, and a coordinator that goes answers all calls") {
  Traces traces;
  bool told = false;
  traces.begin({}, {}, 0, [&](const v1::TraceReply&) { told = true; });
  CHECK(told);
  Asked asked;
  asked.traces.forget_all();
  CHECK(asked.told);
}

}  // namespace dtrun::rendezvous::traces_test
