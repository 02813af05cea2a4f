// The search for algorithms on the stand-in: bad candidates are thrown out, and the fastest becomes a row.
#include "tests/bench/algorithm_search.h"

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/support/folder.h"
#include "tests/worker/device/cuda/matmul/products_on_cpu.h"
#include "worker/base/error.h"
#include "worker/device/cuda_device.h"

namespace dtrun::worker::cuda {
namespace {

// The algorithm that matmuls were computed by since the last call.
std::string last_algorithm() {
  const auto counted = cuda_on_cpu::counters().products_by_algorithm;
  cuda_on_cpu::reset_counters();
  REQUIRE(counted.size() == 1);
  return counted.begin()->first;
}

// A clock by which algorithms take what `microseconds` says, others 100.
Timer clock_of(std::map<std::string, double> microseconds) {
  return [=](CudaStream& stream, int, const std::function<void()>& enqueue) {
    stream.wait();
    cuda_on_cpu::reset_counters();
    enqueue();
    stream.wait();
    const auto found = microseconds.find(last_algorithm());
    return found != microseconds.end() ? found->second : 100.0;
  };
}

// As it was at the end.
struct Restored {
  ~Restored() { cuda_on_cpu::settings.faulty_algorithms = false; }
};

MatmulShape long_sum(std::int64_t m = 24, std::int64_t n = 16, std::int64_t k = 400) {
  return {.m = m, .n = n, .k = k, .a_stride = k, .b_stride = n, .c_stride = n};
}

const Candidate& candidate(const Search& search, const std::string& name) {
  const auto found =
      std::ranges::find_if(search.candidates, [&](const Candidate& each) { return each.name == name; });
  REQUIRE(found != search.candidates.end());
  return *found;
}

TEST_CASE("the fastest is taken, unless the first choice is hardly slower") {
  const auto best = [](const std::map<std::string, double>& microseconds) {
    AlgorithmSearch algorithms(0, clock_of(microseconds));
    const Search search = algorithms.search(long_sum());
    REQUIRE(search.best.has_value());
    CHECK(search.candidates.size() == 5);
    CHECK(search.candidates[0].name == "algorithm 1, tile 20, stages 0, split 4");
    return search.candidates[*search.best];
  };
  const Candidate split_2 = best({{"tile 15, split 2", 60}, {"tile 15, split 1", 61}});
  CHECK(split_2.name == "algorithm 1, tile 15, stages 0, split 2");
  CHECK(split_2.microseconds == 60);
  CHECK(best({}).name == "algorithm 1, tile 20, stages 0, split 4");
  CHECK(best({{"tile 15, split 2", 99.2}}).name == "algorithm 1, tile 20, stages 0, split 4");
}

TEST_CASE("what loses terms or is not the same each time is thrown out, however fast it is") {
  const Restored restored;
  cuda_on_cpu::settings.faulty_algorithms = true;
  for (const bool bf16 : {false, true})
    for (const bool wide : {false, true}) {
      CAPTURE(bf16);
      CAPTURE(wide);
      // With few sums each may be rounded to the same bf16.
      MatmulShape shape = bf16 && !wide ? long_sum(256, 128, 1100) : long_sum();
      shape.bf16 = bf16;
      shape.wide = bf16 && wide;
      AlgorithmSearch algorithms(0, clock_of({{"tile 11, split 1", 1}, {"tile 11, split 4", 1}}));
      cuda_on_cpu::reset_counters();
      const Search search = algorithms.search(shape);
      CHECK(search.candidates.size() == 7);
      int bad = 0;
      for (const Candidate& each : search.candidates) bad += static_cast<int>(!each.fault.empty());
      CHECK(bad == 2);
      const std::string loses = candidate(search, "algorithm 1, tile 11, stages 0, split 1").fault,
                        unsteady = candidate(search, "algorithm 1, tile 11, stages 0, split 4").fault;
      CHECK(loses.starts_with("wrong: of ones, row 0, element 0 is "));
      CHECK(unsteady.starts_with("other bits at repetition "));
      CHECK(search.best == std::size_t{0});
      CHECK(search.unsplit == 2);
      CHECK(search.unsplit_alike == 2);
    }
}

TEST_CASE("every epilogue and addition, with operands that are little aligned, is searched") {
  const Restored restored;
  cuda_on_cpu::settings.faulty_algorithms = true;
  int searched = 0;
  for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasGelu,
                                  Epilogue::kGeluGradient, Epilogue::kRowSums, Epilogue::kColumnSums})
    for (const bool add : {false, true}) {
      MatmulShape shape = long_sum();
      shape.epilogue = epilogue;
      shape.add = add;
      shape.a_alignment = shape.c_alignment = 16;
      shape.bias_alignment = 8;
      CAPTURE(static_cast<int>(epilogue));
      CAPTURE(add);
      AlgorithmSearch algorithms(0, clock_of({{"tile 15, split 2", 60}}));
      if (!algorithms.can(shape)) continue;
      const Search search = algorithms.search(shape);
      REQUIRE(search.best.has_value());
      CHECK(search.candidates[*search.best].name == "algorithm 1, tile 15, stages 0, split 2");
      CHECK(search.candidates.size() == 7);
      ++searched;
    }
  CHECK(searched >= 7);
}

// A job on data that needs no files.
std::string config(const test::Folder& folder, const std::string& name, bool bf16) {
  const std::string file = (folder.path() / (name + ".json")).string();
  std::ofstream(file)
      << R"({"output_dir": "run", "model": {"type": "mlp", "hidden_sizes": [24, 16]},)"
      << R"( "data": {"type": "synthetic", "samples": 100, "shape": [1, 8, 8], "classes": 10},)"
      << R"( "train": {"global_batch_size": 8, "micro_batch_size": 8, "bf16": )" << (bf16 ? "true" : "false")
      << "}}";
  return file;
}

struct Said {
  int exit_code;
  std::string text;
};
Said said(const std::vector<std::string>& arguments, const Timer& timer) {
  std::ostringstream out;
  const int exit_code = search_algorithms(arguments, out, timer);
  return {exit_code, out.str()};
}

TEST_CASE("what the program prints is a table, the same each time") {
  const Restored restored;
  const test::Folder folder;
  const std::vector<std::string> configs{config(folder, "wide", false), config(folder, "narrow", true)};
  const auto timer = clock_of({{"tile 15, split 1", 60}});
  cuda_on_cpu::settings.faulty_algorithms = true;
  const Said first = said(configs, timer);
  INFO(first.text);
  CHECK(first.exit_code == 0);
  CHECK(said(configs, timer).text == first.text);
  CHECK(first.text.starts_with("[" + kPlatformOnCpu + "]\n"));
  CHECK(first.text.find("# wide.json: a microbatch's matmuls take ") != std::string::npos);
  CHECK(first.text.find("# with split 1, tiles change bits of 0 of ") != std::string::npos);
  CHECK(first.text.find("other bits at repetition ") != std::string::npos);
  const std::regex row(
      R"(\n\d+ \d+ \d+ \d+t? \d+t? \d+ (fp32|bf16|bf16>fp32) [a-z-]+ \d+/\d+/\d+/\d+( [0-9a-f]{16}){8})"
      "  # algorithm 1, tile 15, stages 0, split 1: 60\\.0 us; ");
  const auto rows = std::distance(std::sregex_iterator(first.text.begin(), first.text.end(), row), {});
  CHECK(rows > 10);
  CHECK(first.text.find("# " + std::to_string(rows) + " rows, " + std::to_string(rows) +
                        " of them not of the first choice; ") != std::string::npos);
}

TEST_CASE("a matmul without a good algorithm has no row, and is counted") {
  const Restored restored;
  const test::Folder folder;
  cuda_on_cpu::settings.lost_terms = 1;
  const Said all_wrong = said({config(folder, "job", false)}, clock_of({}));
  cuda_on_cpu::settings.lost_terms = 0;
  INFO(all_wrong.text);
  CHECK(all_wrong.exit_code == 0);
  CHECK(all_wrong.text.find("#   no algorithm can be taken\n") != std::string::npos);
  CHECK(all_wrong.text.find("# 0 rows, ") != std::string::npos);
  CHECK(all_wrong.text.find("; 0 matmuls without a good algorithm") == std::string::npos);
}

TEST_CASE("what there is no time for is left out and counted") {
  const test::Folder folder;
  const Said said_nothing = said({"--seconds", "1e-9", config(folder, "job", false)}, clock_of({}));
  INFO(said_nothing.text);
  CHECK(said_nothing.exit_code == 0);
  CHECK(said_nothing.text.find("# 0 rows, 0 of them not of the first choice; ") != std::string::npos);
  CHECK(said_nothing.text.find(", 0 without time\n") == std::string::npos);
}

TEST_CASE("matmuls are timed by events") {
  CudaStream stream(0);
  int calls = 0;
  const double microseconds = by_events(stream, 5, [&] { ++calls; });
  CHECK(calls == 5);
  CHECK(microseconds >= 0);
}

TEST_CASE("a wrong command line, a missing file and a bad config are said") {
  const test::Folder folder;
  CHECK(said({}, clock_of({})).exit_code == kExitUsage);
  CHECK(said({"--seconds", "x", "a.json"}, clock_of({})).exit_code == kExitUsage);
  const Said missing = said({(folder / "none.json").string()}, clock_of({}));
  CHECK(missing.exit_code == kExitNoInput);
  CHECK(missing.text.find("none.json: cannot be read") != std::string::npos);
  std::ofstream(folder / "bad.json") << "{}";
  CHECK(said({(folder / "bad.json").string()}, clock_of({})).exit_code == kExitConfig);
}

}  // namespace
}  // namespace dtrun::worker::cuda
