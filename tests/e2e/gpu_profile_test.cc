// dtrun profile on a GPU, end to end on the stand-in for one (tests/cuda_on_cpu).
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/e2e/gpu_lab.h"

namespace dtrun::gpu_profile_test {

using namespace dtrun::test;
namespace fs = std::filesystem;

namespace {

// Profiles a model of models().
Words profile(const Lab& lab, const Model& model, const Words& options = {}, const Words& overrides = {}) {
  const Words job = lab.job(model, 1, "job", 10);
  const auto config =
      std::ranges::find_if(job, [](const std::string& word) { return word.ends_with(".json"); });
  Words argv{job[0], "profile", *config};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), overrides.begin(), overrides.end());
  return argv;
}

std::string one_line(const Ended& ended) {
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  return ended.err;
}

}  // namespace

TEST_CASE("each operation of each model is told of, and shares and gaps are a step") {
  const Lab lab;
  for (const Model& one : models()) {
    CAPTURE(one.name);
    const Ended ended = lab.run(profile(lab, one, {"--json", "--steps", "3"}));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
    CHECK(says(ended, "dtrun: device: cuda, 1 GPU"));
    const Json all = Json::parse(ended.out);
    CHECK(all["version"] == 2);
    CHECK(all["device"] == "cuda");
    CHECK(all["steps"] == 3);
    CHECK(all["untimed_steps"] == 3);
    CHECK(all["lanes"] == 1);
    CHECK(all["samples_per_step"] == 16);
    for (const char* time : {"step_seconds", "timed_step_seconds", "busy_seconds", "floor_seconds"})
      CHECK_MESSAGE(all[time].get<double>() > 0, time);
    CHECK(all["ceiling"]["flops_per_second"].get<double>() > 1e6);
    CHECK(all["ceiling"]["bytes_per_second"].get<double>() > 1e6);
    std::set<std::string> parts, whats;
    double shares = all["gap_seconds"].get<double>() / all["timed_step_seconds"].get<double>();
    CHECK(shares >= 0);
    for (const Json& row : all["rows"]) {
      CAPTURE(row.dump());
      parts.insert(row["part"]);
      whats.insert(row["what"]);
      shares += row["share"].get<double>();
      CHECK(row["launches"].get<double>() > 0);
      CHECK(row["seconds"].get<double>() > 0);
      CHECK(row["bytes"].get<double>() > 0);
      CHECK(row["floor_seconds"].get<double>() > 0);
      if (row["part"] == "weight gradient") CHECK(row["stream"] == "side 1");
    }
    CHECK(shares == doctest::Approx(1));
    for (const char* part : {"forward", "input gradient", "weight gradient", "backward"})
      CHECK_MESSAGE(parts.contains(part), part);
    for (const char* what : {"AdamW", "norm", "adding microbatches up", "uploading microbatches"})
      CHECK_MESSAGE(whats.contains(what), what);
    CHECK_FALSE(fs::exists(lab.output("job")));
  }
}

TEST_CASE("the table names the GPU and each stream") {
  const Lab lab;
  const Ended ended = lab.run(profile(lab, models()[0], {"--steps", "2", "--lanes", "3"}));
  REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  CHECK(says(ended, "--lanes=3 has no effect: a worker with a GPU has one lane"));
  for (const char* text :
       {"NVIDIA H100 (simulated), ", "\nceilings: matmuls ", "Linear 64 -> 256 + GELU, forward ",
        "Linear 64 -> 192, weight gradient (side 1) ", "\ngaps, in which none of these ran ",
        "\na step as it is run ", " samples/s as it is run, over 2 steps"})
    CHECK_MESSAGE(ended.out.find(text) != std::string::npos, text, ended.out);
}

TEST_CASE("the device is what a run would have, and what is wrong is one line") {
  const Lab lab;
  Model one = models()[2];
  one.bf16 = false;
  const Ended automatic = lab.run(profile(lab, one, {"--steps", "1", "--json"}, {"device=auto"}));
  REQUIRE_MESSAGE(automatic.exit_code == 0, automatic.err);
  CHECK(Json::parse(automatic.out)["device"] == "cuda");
  const Ended hidden =
      lab.run(profile(lab, one, {"--steps", "1", "--json"}, {"device=auto"}), {"CUDA_VISIBLE_DEVICES="});
  REQUIRE_MESSAGE(hidden.exit_code == 0, hidden.err);
  CHECK(Json::parse(hidden.out)["device"] == "cpu");
  CHECK_MESSAGE(says(hidden, "device: cpu, no GPU here"), hidden.err);

  const Ended none = lab.run(profile(lab, one), {"CUDA_VISIBLE_DEVICES="});
  CHECK(none.exit_code == 78);
  CHECK(one_line(none).find("/device is \"cuda\", but no GPU here") != std::string::npos);
  const Ended full = lab.run(profile(lab, models()[0], {}, {"train.micro_batch_size=16", "model.n_embd=128"}),
                             {"DTRUN_TEST_GPU_MEMORY=2000000"});
  CHECK(full.exit_code == 78);
  CHECK_MESSAGE(says(full, "dtrun: the GPU has no room for the activations of 16 samples"), full.err);
  const Ended broken = lab.run(profile(lab, one), {"DTRUN_TEST_GPU_FAULT=launch:300:700"});
  CHECK(broken.exit_code == 71);
  CHECK_MESSAGE(says(broken, "cudaErrorIllegalAddress"), broken.err);
}

}  // namespace dtrun::gpu_profile_test
