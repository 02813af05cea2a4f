// Plans of the built-in trainer: its config, and the device that its workers have.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cmd/machine/device_choice.h"
#include "cmd/plan/plan_json.h"
#include "tests/cmd/plan/planned.h"

namespace dtrun::trainer_plan_test {

using namespace dtrun::cmd;

TEST_CASE("a config brings its launch section, overrides and a canonical text") {
  const Job job;
  const JobSpec spec = good({job.path(), "train.max_steps=10"}, {}, 8);
  CHECK(spec.nproc == 3);
  CHECK(spec.max_restarts == 5);
  CHECK(spec.role == "trainer");
  const auto& trainer = std::get<BuiltinTrainer>(spec.program);
  CHECK(trainer.lanes == 2);
  CHECK(trainer.output_dir == "out");
  CHECK(nlohmann::json::parse(trainer.config_json)["train"]["max_steps"] == 10);
  CHECK(good({"--nproc_per_node", "2", "--max_restarts", "0", job.path()}).nproc == 2);
  CHECK(good({"--lanes", "7", job.path()}).max_restarts == 5);
  CHECK(good({"--crash_loop_limit", "4", job.path()}).crash_loop_limit == 4);
  CHECK(std::get<BuiltinTrainer>(good({"--lanes", "4096", job.path()}).program).lanes == 4096);
  CHECK(bad({"--lanes", "4097", job.path()}).find("(1 to 4096)") != std::string::npos);
}

TEST_CASE("the env backend's one worker overrules the launch section in silence, an option with a word") {
  const Job job;
  const Variables variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  const Planned silent = plan({"--rdzv_backend", "env", job.path()}, variables);
  REQUIRE_MESSAGE(silent.spec.ok(), silent.spec.status().message());
  CHECK(silent.spec.value().nproc == 1);
  CHECK(silent.notices.empty());
  const Planned said = plan({"--rdzv_backend", "env", "--nproc_per_node", "2", job.path()}, variables);
  CHECK(said.notices == std::vector<std::string>{"--nproc_per_node has no effect with --rdzv_backend env"});
}

TEST_CASE("the built-in trainer has no use for a master port or virtual ranks, which is said") {
  const Job job;
  const Planned planned = plan({"--master_port", "5", "--virtual_local_rank", job.path()});
  REQUIRE(planned.spec.ok());
  REQUIRE(planned.notices.size() == 2);
  CHECK(planned.notices[0] == "--master_port has no effect on the built-in trainer");
  CHECK(planned.notices[1] == "--virtual_local_rank has no effect on the built-in trainer");
}

TEST_CASE("a config that is missing, broken or names missing data is refused with the contract's code") {
  const Job job;
  CHECK(bad({"/nonexistent/job.json"}, kExitNoInput).find("/nonexistent/job.json") != std::string::npos);
  CHECK(bad({job.directory().string() + "/.json"}, kExitNoInput).find(".json") != std::string::npos);
  CHECK(bad({job.path(), "train.sed=1"}, kExitConfig).find("seed") != std::string::npos);
  CHECK(bad({job.path(), "train"}).find("key=value") != std::string::npos);
  CHECK(bad({job.path(), "data.path=/nonexistent"}, kExitNoInput).find("/nonexistent") != std::string::npos);
}

TEST_CASE("a job of bf16 is refused where the processor cannot multiply it, before anything starts") {
  const Job job;
  const std::vector<std::string> words{job.path(), "model.type=mlp", "train.bf16=true"};
  CHECK(plan(words).spec.ok());
  const Planned refused = plan(words, {}, 8, 0, false);
  REQUIRE_FALSE(refused.spec.ok());
  CHECK(refused.spec.status().exit_code() == kExitConfig);
  const std::string text = refused.spec.status().message();
  CHECK(text.starts_with(job.path() + ": /train/bf16: true needs a processor with "));
  CHECK(text.ends_with("leave it out or set it to false, for fp32"));
  CHECK(plan({job.path(), "model.type=mlp"}, {}, 8, 0, false).spec.ok());
}

TEST_CASE("the workers' device is chosen by config, build and GPUs, and the plan says why") {
  const Job job;
  const auto planned = [&](std::vector<std::string> words, int gpus, int built_for = 13000) {
    const auto is_override = [](const std::string& word) { return word.find('=') != std::string::npos; };
    words.insert(std::find_if(words.begin(), words.end(), is_override), job.path());
    return plan(words, {}, 8, gpus, false, built_for);
  };
  const auto chosen = [&](const std::vector<std::string>& words, int gpus, int built_for = 13000) {
    const Planned made = planned(words, gpus, built_for);
    REQUIRE_MESSAGE(made.spec.ok(), made.spec.status().message());
    return made.spec.value();
  };
  JobSpec spec = chosen({"device=auto"}, 4);
  CHECK(spec.device == "cuda, 3 GPUs (NVIDIA H200)");
  CHECK(spec.gpus.size() == 3);
  CHECK(spec.gpus[2].index == 2);
  CHECK(std::get<BuiltinTrainer>(spec.program).cuda);
  CHECK(std::get<BuiltinTrainer>(spec.program).lanes == 1);
  const auto json = nlohmann::json::parse(plan_json(spec));
  CHECK(json["device"] == "cuda, 3 GPUs (NVIDIA H200)");
  CHECK(json["gpus"].size() == 3);
  CHECK(json["gpus"][1]["index"] == 1);

  spec = chosen({"device=auto"}, 2);
  CHECK(spec.device == "cpu, 2 GPUs for 3 workers, and each needs its own");
  CHECK(spec.gpus.empty());
  CHECK_FALSE(std::get<BuiltinTrainer>(spec.program).cuda);
  CHECK(std::get<BuiltinTrainer>(spec.program).lanes == 2);
  CHECK(nlohmann::json::parse(plan_json(spec))["gpus"].is_null());
  CHECK(chosen({"device=auto"}, 0).device == "cpu, no GPU here (no NVIDIA driver)");
  CHECK(chosen({"device=auto"}, 4, 0).device == "cpu, this dtrun was built without CUDA");
  CHECK(chosen({"device=cpu"}, 4).device == "cpu, as /device says");
  CHECK(chosen({"device=auto"}, 4, 14000).device ==
        "cpu, the NVIDIA driver is too old (580.65.06, for CUDA 13.0; this dtrun needs 14.0 or newer)");

  // The workers are counted by what they can use.
  CHECK(chosen({"--nproc_per_node", "gpu", "device=auto"}, 4).nproc == 4);
  CHECK(chosen({"--nproc_per_node", "auto", "device=auto"}, 4).nproc == 4);
  CHECK(chosen({"--nproc_per_node", "auto", "device=cpu"}, 4).nproc == 8);
  CHECK(chosen({"--nproc_per_node", "auto", "device=auto"}, 4, 0).nproc == 8);
  CHECK(planned({"--nproc_per_node", "gpu", "device=cpu"}, 4).spec.status().message() ==
        "--nproc_per_node=gpu: /device is \"cpu\"; use cpu, auto or a number");

  // A CPU that cannot multiply bf16 does not matter where it need not.
  CHECK(chosen({"device=cuda", "model.type=mlp", "train.bf16=true"}, 4).gpus.size() == 3);
  CHECK(planned({"device=cpu", "model.type=mlp", "train.bf16=true"}, 4).spec.status().exit_code() ==
        kExitConfig);
}

TEST_CASE("a device that cannot be had is refused in one line that says why") {
  const Job job;
  const auto refused = [&](int gpus, int built_for) {
    const Planned made = plan({job.path(), "device=cuda"}, {}, 8, gpus, true, built_for);
    CHECK(made.spec.status().exit_code() == kExitConfig);
    const std::string text = made.spec.status().message();
    CHECK(text.starts_with(job.path() + ": /device is \"cuda\", but "));
    return text.substr(text.find("but ") + 4);
  };
  CHECK(refused(4, 0) == "this dtrun was built without CUDA");
  CHECK(refused(0, 13000) == "no GPU here (no NVIDIA driver)");
  CHECK(refused(2, 13000) == "2 GPUs for 3 workers, and each needs its own");
  CHECK(refused(4, 14000).starts_with("the NVIDIA driver is too old (580.65.06"));
}

TEST_CASE("workers of one node have GPUs of one kind") {
  std::vector<Gpu> gpus = with_gpus(3).gpus;
  gpus[2].name = "NVIDIA L4";
  const auto choice = choose_device(worker::DeviceType::kCuda, "", gpus, 2);
  REQUIRE(choice.ok());
  CHECK(choice.value().why == "cuda, 2 GPUs (NVIDIA H200)");
  CHECK(choose_device(worker::DeviceType::kCuda, "", gpus, 3).status().message() ==
        "/device is \"cuda\", but GPU 0 is NVIDIA H200, GPU 2 is NVIDIA L4: other kinds give other bits; "
        "choose "
        "one by CUDA_VISIBLE_DEVICES");
}

TEST_CASE("with the env backend LOCAL_RANK says which GPU the one worker has") {
  const Job job;
  const Variables place{{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "1"},
                        {"LOCAL_RANK", "1"}};
  const Planned made = plan({"--rdzv_backend", "env", job.path()}, place, 8, 2, true, 13000);
  REQUIRE_MESSAGE(made.spec.ok(), made.spec.status().message());
  REQUIRE(made.spec.value().gpus.size() == 1);
  CHECK(made.spec.value().gpus[0].index == 1);
}

TEST_CASE("a config that never ends is refused as too long") {
  const Job job;
  const auto size = std::filesystem::file_size(job.path());
  std::ofstream(job.path(), std::ios::app) << std::string(1048576 - size, ' ');
  CHECK(good({job.path()}).nproc == 3);
  std::ofstream(job.path(), std::ios::app) << ' ';
  CHECK(bad({job.path()}, kExitConfig).find("at most 1048576 bytes") != std::string::npos);
  const auto endless = job.directory() / "endless.json";
  std::filesystem::create_symlink("/dev/zero", endless);
  CHECK(bad({endless.string()}, kExitConfig).find("at most 1048576 bytes") != std::string::npos);
}

}  // namespace dtrun::trainer_plan_test
