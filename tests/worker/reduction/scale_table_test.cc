// The bytes that each rank and each network card sends for one step, by the plan of the exchange: the tables
// of docs/scale.md. They are compared; DTRUN_REWRITE_TABLES=1 writes what the plan says now, to be reviewed
// as a diff.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "worker/model/program.h"
#include "worker/reduction/exchange_plan.h"

namespace dtrun::worker::scale_table_test {
namespace {

constexpr char kBegin[] = "<!-- bytes of the exchange: begin -->\n";
constexpr char kEnd[] = "<!-- bytes of the exchange: end -->\n";
constexpr int kOfHost = 8;
// Beyond this many ranks' plans of this many peers only some ranks are asked.
constexpr int kPlans = 65536;

// The load of one step: the most that any of the ranks asked has.
struct Load {
  double sent = 0, received = 0;  // bytes
  double across = 0;              // the part of `sent` to other hosts
  std::size_t inputs = 0;         // of one sum
  std::size_t messages = 0;
};

Load load_of(const ExchangePlan& plan, int rank) {
  Load load;
  for (const BucketPlan& bucket : plan.buckets) {
    for (const ExchangeRound& round : bucket.rounds) {
      for (const OutMove& move : round.out) {
        const double bytes = static_cast<double>(move.piece.range.size() * sizeof(float));
        load.sent += bytes;
        if (move.peer / kOfHost != rank / kOfHost) load.across += bytes;
      }
      for (const InMove& move : round.in)
        load.received += static_cast<double>(move.piece.range.size() * sizeof(float));
      for (const PieceSum& sum : round.sums) load.inputs = std::max(load.inputs, sum.inputs.size());
      load.messages += round.out.size();
    }
  }
  return load;
}

std::vector<int> ranks_to_ask(int world) {
  std::vector<int> ranks;
  const int asked = std::max(8, kPlans / world);
  const int step = world <= asked ? 1 : world / asked + 1;  // odd: each place on a host comes by
  for (int rank = 0; rank < world; rank += step) ranks.push_back(rank);
  if (ranks.back() != world - 1) ranks.push_back(world - 1);
  return ranks;
}

// Each rank has one leaf.
Load most(const Program& program, int world, int ranks_of_host) {
  Load all;
  for (const int rank : ranks_to_ask(world)) {
    const Load load =
        load_of(plan_exchange(world, rank, world, ranks_of_host, program.buckets, kDirectBytes), rank);
    all.sent = std::max(all.sent, load.sent);
    all.received = std::max(all.received, load.received);
    all.across = std::max(all.across, load.across);
    all.inputs = std::max(all.inputs, load.inputs);
    all.messages = std::max(all.messages, load.messages);
  }
  return all;
}

struct Model {
  std::string name;
  Program program;
};

std::vector<Model> models() {
  ModelConfig small{.type = ModelType::kGpt2}, large{.type = ModelType::kGpt2};
  large.n_layer = 48;
  large.n_head = 25;
  large.n_embd = 1600;
  const SampleSpec tokens{
      .input = SampleSpec::Input::kTokens, .shape = {1, 1, 1024}, .targets = 1024, .classes = 50257};
  return {{"GPT-2 124M", make_program(small, tokens)}, {"GPT-2 1.5B", make_program(large, tokens)}};
}

std::string row(const Model& model, int world) {
  constexpr double kMega = 1e6;
  const Load flat = most(model.program, world, 0), levels = most(model.program, world, kOfHost);
  const double bytes = static_cast<double>(model.program.size * sizeof(float));
  const double ring = 2 * bytes * (world - 1) / world;
  // A ring along each network card: rank k of every host is between the k-th of the hosts beside it.
  const double ring_across = world > kOfHost ? ring / kOfHost : 0;
  char text[256];
  std::snprintf(
      text, sizeof text, "| %s | %d | %.0f | %.0f | %.0f | %.1f | %.1f | %.1f | %zu / %zu | %zu / %zu |\n",
      model.name.c_str(), world, flat.sent / kMega, levels.sent / kMega, ring / kMega, flat.across / kMega,
      levels.across / kMega, ring_across / kMega, flat.inputs, levels.inputs, flat.messages, levels.messages);
  return text;
}

std::string table() {
  std::string text =
      "| model | GPUs | rank sends: flat | two levels | ring | card sends: flat | two levels | ring | inputs "
      "of "
      "one sum | messages of a rank |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Model& model : models())
    for (const int world : {8, 16, 64, 1024, 16384}) text += row(model, world);
  return text;
}

}  // namespace

TEST_CASE("the plan moves as many bytes as docs/scale.md has them") {
  const std::string path = DTRUN_SOURCE_DIR "/docs/scale.md", page = test::read_text(path);
  const std::size_t begin = page.find(kBegin), end = page.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::size_t first = begin + sizeof kBegin - 1;
  const std::string now = table();
  if (std::getenv("DTRUN_REWRITE_TABLES") != nullptr)
    return test::write_text(path, page.substr(0, first) + now + page.substr(end));
  CHECK(page.substr(first, end - first) == now);
}

TEST_CASE("a step takes about as many groups as there are buckets") {
  for (const Model& model : models()) {
    const std::vector<VectorRange>& buckets = model.program.buckets;
    CHECK(plan_exchange(8, 0, 8, 8, buckets, kDirectBytes).groups() == buckets.size() + 1);
    CHECK(plan_exchange(64, 0, 64, kOfHost, buckets, kDirectBytes).groups() == buckets.size() + 3);
  }
}

TEST_CASE("a rank receives as much as it sends, where all have as many leaves") {
  const Model model = models()[0];
  for (const int of_host : {0, kOfHost}) {
    const Load load = most(model.program, 64, of_host);
    const double bytes = static_cast<double>(model.program.size * sizeof(float));
    // Slices differ by a float for each bucket and round.
    CHECK(load.sent == doctest::Approx(load.received).epsilon(1e-5));
    CHECK(load.sent >= 2 * bytes * 63 / 64 * (1 - 1e-5));
  }
}

}  // namespace dtrun::worker::scale_table_test
