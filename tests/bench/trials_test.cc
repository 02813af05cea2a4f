// The trials on the stand-in: results that differ between repeats are found and reported, equal results have
// one hash, and each way of computing is measured.
#include "tests/bench/trials.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/algorithm_search.h"
#include "tests/bench/attention_ways.h"
#include "tests/bench/bit_hash.h"
#include "tests/bench/repeats.h"
#include "tests/bench/weight_ways.h"
#include "tests/cuda_on_cpu/counters.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/faults.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/matmul_problem.h"
#include "tests/support/folder.h"
#include "tests/worker/device/cuda/orders.h"
#include "worker/base/error.h"
#include "worker/device/cuda/kernels/elementwise.h"

namespace dtrun::worker::cuda {
namespace {

using Lines = std::vector<nlohmann::json>;

// A clock that needs no time: work takes 100 us.
double at_once(CudaStream& stream, int, const std::function<void()>& enqueue) {
  enqueue();
  stream.wait();
  return 100;
}

std::string trial_config(const test::Folder& folder, const std::string& name, const std::string& model,
                         const std::string& data, bool bf16) {
  const std::string file = (folder.path() / (name + ".json")).string();
  std::ofstream(file) << R"({"output_dir": "run", "device": "cuda", "model": )" << model << R"(, "data": )"
                      << data << R"(, "train": {"global_batch_size": 2, "micro_batch_size": 2, "bf16": )"
                      << (bf16 ? "true" : "false") << "}}";
  return file;
}

std::string gpt2(const test::Folder& folder, bool bf16) {
  std::ofstream(folder.path() / "text")
      << std::string(400, 'a') << "some other text, for samples that differ";
  return trial_config(
      folder, "gpt2", R"({"type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 24})",
      R"({"type": "text", "path": ")" + (folder.path() / "text").string() + R"(", "sequence_length": 24})",
      bf16);
}

std::string convnet(const test::Folder& folder) {
  return trial_config(folder, "convnet", R"({"type": "convnet", "channels": [3, 5], "kernel_size": 3})",
                      R"({"type": "synthetic", "samples": 20, "shape": [1, 12, 12], "classes": 4})", false);
}

struct Answer {
  int exit_code;
  Lines lines;
  std::string text;
};
Answer tried(const std::vector<std::string>& arguments, const Timer& timer = at_once) {
  std::ostringstream out;
  Answer answer{.exit_code = run_trials(arguments, out, timer), .lines = {}, .text = out.str()};
  std::istringstream in(answer.text);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("{")) answer.lines.push_back(nlohmann::json::parse(line));
  return answer;
}

std::map<std::string, int> count_by_kind(const Lines& lines) {
  std::map<std::string, int> counts;
  for (const auto& line : lines) ++counts[line.value("kind", "")];
  return counts;
}

TEST_CASE("each bit of a vector and its place make its hash") {
  TrialGpu gpu(at_once);
  BitHash hash(gpu.arithmetic, gpu.stream);
  const OnGpuVector<__nv_bfloat16> values(gpu, 1001, 1);
  const auto hash_of = [&](std::size_t bytes) {
    hash.add(values.data(), bytes);
    return hash.take();
  };
  const std::uint64_t whole = hash_of(2002);
  CHECK(hash_of(2002) == whole);
  CHECK(hash_of(2000) != whole);
  std::vector<std::uint16_t> host(1001);
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    check(cudaMemcpyAsync(to, from, 2002, kind, gpu.stream.handle()), "copying");
    gpu.stream.wait();
  };
  copy(host.data(), values.data(), cudaMemcpyDeviceToHost);
  for (const std::size_t at : {0u, 1u, 777u, 1000u}) {
    CAPTURE(at);
    host[at] ^= 1;
    copy(values.data(), host.data(), cudaMemcpyHostToDevice);
    CHECK(hash_of(2002) != whole);
    host[at] ^= 1;
  }
  std::swap(host[3], host[900]);
  copy(values.data(), host.data(), cudaMemcpyHostToDevice);
  CHECK(hash_of(2002) != whole);
  std::swap(host[3], host[900]);
  copy(values.data(), host.data(), cudaMemcpyHostToDevice);
  CHECK(hash_of(2002) == whole);
  // The same numbers in two vectors are not those in one.
  hash.add(values.data(), 1000);
  hash.add(values.data() + 500, 1002);
  CHECK(hash.take() != whole);
}

TEST_CASE("what a job computes is the same each time, also where blocks and streams run in other orders") {
  const test::Folder folder;
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    const std::vector<std::string> arguments{"repeats",          "--times",      "3", "--busy", "4096",
                                             gpt2(folder, bf16), convnet(folder)};
    const Answer first = tried(arguments);
    INFO(first.text);
    CHECK(first.exit_code == 0);
    const auto counts = count_by_kind(first.lines);
    CHECK(counts.at("attention") == 1);
    CHECK(counts.at("convolution") == 2);
    CHECK(counts.at("microbatch") == 2);
    CHECK(counts.at("matmul") >= 10);
    CHECK(counts.at("addition") >= 4);
    for (const auto& line : first.lines) {
      CAPTURE(line.dump());
      CHECK(!line.contains("skipped"));
      CHECK(line.at("others") == 0);
      CHECK(line.at("times") == (line.at("kind") == "addition" ? 1 : 3));
      CHECK(line.at("hash").get<std::string>().size() == 16);
    }
    const testing::OtherOrderOfStreams order(5);
    CHECK(tried(arguments).text == first.text);
  }
}

// No config asks for it; a lane can.
TEST_CASE("convolutions in bf16 are the same each time") {
  const test::Folder folder;
  Job job = job_of(convnet(folder));
  job.program.bf16 = true;
  TrialGpu gpu(at_once);
  std::vector<Repeated> convolutions;
  repeat_parts(gpu, job, {.times = 3}, [&](const Repeated& repeated) {
    CHECK(repeated.others == 0);
    if (repeated.kind == "convolution") convolutions.push_back(repeated);
  });
  REQUIRE(convolutions.size() == 2);
  CHECK(convolutions[0].times == 3);
  CHECK(convolutions[0].hash != convolutions[1].hash);
}

TEST_CASE("a matmul that is not the same each time is found, by itself and in a microbatch's gradient") {
  const test::Folder folder;
  cuda_on_cpu::settings.unsteady_first = true;
  const Answer found = tried({"repeats", "--times", "10", "--busy", "0", gpt2(folder, false)});
  cuda_on_cpu::settings.unsteady_first = false;
  INFO(found.text);
  CHECK(found.exit_code == 0);
  int matmuls = 0, gradients = 0, others = 0;
  for (const auto& line : found.lines) {
    const bool differs = line.at("others") > 0;
    matmuls += static_cast<int>(differs && line.at("kind") == "matmul");
    gradients += static_cast<int>(differs && line.at("kind") == "microbatch");
    others += static_cast<int>(differs && line.at("kind") == "attention");
  }
  CHECK(matmuls >= 5);
  CHECK(gradients == 1);
  CHECK(others == 0);
}

TEST_CASE("what there is no room for is told as skipped, and the rest goes on") {
  const test::Folder folder;
  const std::string file = gpt2(folder, true);
  const std::size_t before = cuda_on_cpu::machine.memory_bytes;
  cuda_on_cpu::machine.memory_bytes = (std::size_t{32} << 20) + 20000;
  const Answer found = tried({"repeats", "--times", "2", "--busy", "0", file});
  cuda_on_cpu::machine.memory_bytes = before;
  INFO(found.text);
  CHECK(found.exit_code == 0);
  const auto skipped = [](const nlohmann::json& line) { return line.contains("skipped"); };
  CHECK(std::ranges::any_of(found.lines, skipped));
  CHECK_FALSE(std::ranges::all_of(found.lines, skipped));
}

TEST_CASE("a GPU that fails ends the trials with its error, and what was found before is told") {
  const test::Folder folder;
  cuda_on_cpu::plan_faults({.launch = 60});
  const Answer found = tried({"repeats", "--times", "4", "--busy", "0", gpt2(folder, true)});
  cuda_on_cpu::plan_faults({});
  cudaGetLastError();  // clears the error
  INFO(found.text);
  CHECK(found.exit_code == kExitOsError);
  CHECK(!found.lines.empty());
  CHECK(found.text.find("GPU") != std::string::npos);
}

TEST_CASE("attention is measured in each way, with its work and its memory") {
  const test::Folder folder;
  const Answer found = tried({"attention", "--times", "3", gpt2(folder, true), gpt2(folder, true)});
  INFO(found.text);
  CHECK(found.exit_code == 0);
  REQUIRE(found.lines.size() == 6);
  const auto& own = found.lines[0];
  CHECK(own.at("way") == "own kernels");
  CHECK(own.at("samples") == 2);
  CHECK(own.at("tokens") == 24);
  CHECK(own.at("forward_microseconds") == 100);
  CHECK(own.at("forward_flops") == 2.0 * 2 * 2 * 24 * 24 * 8);
  CHECK(own.at("backward_flops") == 5.0 * 2 * 2 * 24 * 24 * 8);
  CHECK(own.at("workspace_bytes") == 2 * 2 * 24 * 4);
  CHECK(own.at("others") == 0);
  CHECK(found.lines[1].at("way") == "cuDNN");
  CHECK(found.lines[1].at("skipped").get<std::string>().find("no cuDNN") != std::string::npos);
  // Query, key and value of 48 rows are read and written in 100 us.
  CHECK(found.lines[2].at("copied_bytes_per_second").get<double>() ==
        doctest::Approx(2.0 * 48 * 48 * 2 / 100e-6));
  CHECK(tried({"attention", gpt2(folder, false)}).lines.empty());
}

// Another library's attention: the own kernels', and what `after` does to the output of each time.
AttentionWay another_way(const std::string& name, const AttentionShape& shape,
                         const std::function<void(cudaStream_t on, __nv_bfloat16* out)>& after) {
  using Memory = AttentionMemory<__nv_bfloat16>;
  return {.name = name,
          .workspace = attention_statistics(shape) * sizeof(float),
          .forward =
              [=](cudaStream_t on, const Memory& m, void*) {
                attention(on, shape, m.qkv.data(), m.out.data(), m.statistics.data());
                after(on, m.out.data());
              },
          .backward =
              [=](cudaStream_t on, const Memory& m, void* work) {
                attention_backward(on, shape, m.qkv.data(), m.out.data(), m.out_gradient.data(),
                                   m.statistics.data(), m.qkv_gradient.data(), static_cast<float*>(work));
              }};
}

TEST_CASE("of other ways of attention is told which is wrong, fails, or is not the same each time") {
  const test::Folder folder;
  int times = 0;
  const auto others = [&](const AttentionShape& shape) {
    return std::vector<AttentionWay>{
        another_way("right", shape, [](cudaStream_t, __nv_bfloat16*) {}),
        another_way("wrong", shape, [](cudaStream_t on, __nv_bfloat16* out) { fill(on, 1, 90.0f, out + 7); }),
        another_way("fails", shape,
                    [](cudaStream_t, __nv_bfloat16*) { throw WorkerError(kExitOsError, "no such engine"); }),
        another_way("unsteady", shape, [&](cudaStream_t on, __nv_bfloat16* out) {
          if (++times == 2) fill(on, 1, 0.0f, out + 7);
        })};
  };
  TrialGpu gpu(at_once);
  const AttentionResults results = measure_attention(gpu, {job_of(gpt2(folder, true))}, 3, others);
  REQUIRE(results.ways.size() == 5);
  for (const int good : {0, 1, 2, 4}) CHECK(results.ways[good].backward == 100);
  for (const int steady : {0, 1, 2}) CHECK(results.ways[steady].others == 0);
  CHECK(results.ways[1].fault.empty());
  CHECK(results.ways[2].fault.starts_with("not the own kernels' results: output"));
  CHECK(results.ways[3].fault == "it fails: no such engine");
  CHECK(results.ways[3].backward == 0);
  CHECK(results.ways[4].others == 1);
  CHECK(results.ways[4].fault.empty());
}

// A clock by which only matmuls and kernels take time; least those that are split, most kernels.
double by_own_products(CudaStream& stream, int, const std::function<void()>& enqueue) {
  stream.wait();
  cuda_on_cpu::reset_counters();
  enqueue();
  stream.wait();
  double unsplit = 0;
  for (const auto& [algorithm, times] : cuda_on_cpu::counters().products_by_algorithm)
    if (algorithm.ends_with("split 1")) unsplit += static_cast<double>(times);
  return 100 * static_cast<double>(cuda_on_cpu::counters().kernels) + 10 * unsplit +
         static_cast<double>(cuda_on_cpu::counters().matmuls);
}

TEST_CASE("weight gradients are measured one after the other and beside, in parts and whole") {
  const test::Folder folder;
  const Answer found = tried({"weights", gpt2(folder, true)}, by_own_products);
  INFO(found.text);
  CHECK(found.exit_code == 0);
  REQUIRE(found.lines.size() == 1 + 1 + 4 * 5);
  CHECK(found.lines[0].at("matmuls").size() == 4);
  CHECK(found.lines[0].at("splits") == nlohmann::json::array({"2", "2", "2", "2"}));
  std::map<std::pair<std::string, int>, double> took;
  for (const auto& line : found.lines)
    if (line.contains("microseconds"))
      took[{line.at("algorithms"), line.at("side_streams")}] = line.at("microseconds");
  CHECK(took.size() == 21);
  // Four matmuls of inputs, none of which is split; four of weights.
  CHECK(took.at({"in use", -1}) == 4 + 40);
  CHECK(took.at({"split 1", -2}) == 4 + 40);
  CHECK(took.at({"split", -2}) == 4);
  // Each sums its bias' gradient by one kernel.
  CHECK(took.at({"apart", -2}) == 400 + 4 + 40);
  for (const int side_streams : {0, 1, 2, 4}) {
    CHECK(took.at({"split 1", side_streams}) == 8 + 80);
    CHECK(took.at({"split", side_streams}) == 8 + 40);
    CHECK(took.at({"apart", side_streams}) == 400 + 8 + 80);
  }
}

TEST_CASE("what there is no time for is named") {
  const test::Folder folder;
  for (const char* const what : {"repeats", "attention", "weights"}) {
    CAPTURE(what);
    const Answer found = tried({what, "--seconds", "1e-9", gpt2(folder, true)});
    INFO(found.text);
    CHECK(found.exit_code == 0);
    REQUIRE(found.lines.size() == 1);
    CHECK(found.lines[0].at("left_out") == nlohmann::json::array({"gpt2.json"}));
  }
}

TEST_CASE("a wrong command line is said, and so is a config that is missing") {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"repeats"},
                                                    {"other", "a.json"},
                                                    {"repeats", "--times", "0", "a.json"},
                                                    {"repeats", "--seconds", "x", "a.json"}}) {
    const Answer found = tried(arguments);
    CHECK(found.exit_code == kExitUsage);
    CHECK(found.text.starts_with("usage: "));
  }
  CHECK(tried({"weights", "/nonexistent/a.json"}).exit_code == kExitNoInput);
}

}  // namespace
}  // namespace dtrun::worker::cuda
