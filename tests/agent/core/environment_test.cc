#include "agent/core/environment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

namespace dtrun::environment_test {

using namespace dtrun::agent;

namespace {

Assignment two_nodes() {
  Assignment assignment;
  assignment.generation = 4;
  assignment.group_rank = 1;
  assignment.world_size = 5;
  assignment.node_count = 2;
  assignment.node = {"b", "10.0.0.2", 2, 3};
  assignment.restart_count = 2;
  assignment.master_address = "10.0.0.1";
  assignment.master_port = 4711;
  return assignment;
}

const WorkerSetting kSetting{"run", "trainer", 5, 4, "abc", false, ""};

std::map<std::string, std::string> environment(const std::vector<std::string>& inherited,
                                               int control_fd = 3) {
  std::map<std::string, std::string> out;
  for (const auto& entry :
       worker_environment(inherited, kSetting, two_nodes(), {8, 1}, control_fd, "/logs/error.json")) {
    const std::size_t equals = entry.find('=');
    INFO("twice: ", entry);
    CHECK(out.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second);
  }
  return out;
}

}  // namespace

TEST_CASE("a worker finds all of torchrun's variables and ours, and keeps the rest") {
  const std::map<std::string, std::string> expected = {
      {"PATH", "/bin"},
      {"RANK", "4"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "5"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_RANK", "4"},
      {"ROLE_WORLD_SIZE", "5"},
      {"ROLE_NAME", "trainer"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "4711"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "5"},
      {"TORCHELASTIC_RUN_ID", "run"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "4"},
      {"DTRUN_RUN_ID", "run"},
      {"DTRUN_GENERATION", "4"},
      {"DTRUN_NODE", "1"},
      {"DTRUN_RESTART_COUNT", "2"},
      {"DTRUN_CONTROL_FD", "3"},
      {"DTRUN_PROCESS_TAG", "abc.8;"},
  };
  CHECK(environment({"PATH=/bin", "RANK=99", "MASTER_PORT=1"}) == expected);
}

TEST_CASE("what the user set for threads and NCCL errors stays") {
  const auto env = environment({"OMP_NUM_THREADS=7", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0"});
  CHECK(env.at("OMP_NUM_THREADS") == "7");
  CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
}

TEST_CASE("a program without a control socket does not see an outer job's") {
  CHECK(environment({"DTRUN_CONTROL_FD=3"}, -1).count("DTRUN_CONTROL_FD") == 0);
}

TEST_CASE("a worker without an error file does not write into an outer job's") {
  const auto entries =
      worker_environment({"TORCHELASTIC_ERROR_FILE=/outer"}, kSetting, two_nodes(), {8, 1}, -1, "");
  CHECK(std::count(entries.begin(), entries.end(), "RANK=4") == 1);
  for (const std::string& entry : entries) CHECK_FALSE(entry.starts_with("TORCHELASTIC_ERROR_FILE"));
}

TEST_CASE("a worker of an inner job carries the outer job's tag too") {
  CHECK(environment({"DTRUN_PROCESS_TAG=outer.0;"}).at("DTRUN_PROCESS_TAG") == "outer.0;abc.8;");
}

TEST_CASE("workers that are told a GPU's number count GPUs as dtrun does, whatever the user's shell says") {
  WorkerSetting setting = kSetting;
  const auto order = [&] {
    std::string found;
    for (const auto& entry :
         worker_environment({"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, setting, two_nodes(), {8, 0}, -1, ""))
      if (entry.starts_with("CUDA_DEVICE_ORDER=")) found += entry;
    return found;
  };
  CHECK(order() == "CUDA_DEVICE_ORDER=FASTEST_FIRST");
  setting.gpus_by_address = true;
  CHECK(order() == "CUDA_DEVICE_ORDER=PCI_BUS_ID");
}

TEST_CASE("with virtual local ranks each worker has its own GPU as device 0") {
  WorkerSetting setting = kSetting;
  setting.virtual_local_rank = true;
  const auto variables = [&](const std::vector<std::string>& inherited) {
    const auto entries = worker_environment(inherited, setting, two_nodes(), {8, 1}, -1, "");
    std::string found;
    for (const auto& entry : entries) {
      if (entry.starts_with("LOCAL_RANK=") || entry.starts_with("CUDA_VISIBLE_DEVICES="))
        found += entry + " ";
    }
    return found;
  };
  CHECK(variables({}) == "CUDA_VISIBLE_DEVICES=1 LOCAL_RANK=0 ");
  CHECK(variables({"CUDA_VISIBLE_DEVICES=5,7,6"}) == "CUDA_VISIBLE_DEVICES=7 LOCAL_RANK=0 ");
  CHECK(environment({"CUDA_VISIBLE_DEVICES=5,7"}).at("CUDA_VISIBLE_DEVICES") == "5,7");
}

TEST_CASE("agents that share a host count its workers together") {
  WorkerSetting setting = kSetting;
  setting.first_local_rank = 3;
  setting.local_world_size = 8;
  const auto all = [&](const std::vector<std::string>& inherited) {
    std::map<std::string, std::string> found;
    for (const auto& entry : worker_environment(inherited, setting, two_nodes(), {8, 1}, -1, ""))
      found[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    return found;
  };
  CHECK(all({}).at("LOCAL_RANK") == "4");
  CHECK(all({}).at("LOCAL_WORLD_SIZE") == "8");
  CHECK(all({}).at("RANK") == "4");
  CHECK(all({}).at("GROUP_RANK") == "1");
  setting.virtual_local_rank = true;
  CHECK(all({"CUDA_VISIBLE_DEVICES=7,6,5,4,3"}).at("CUDA_VISIBLE_DEVICES") == "3");
}

TEST_CASE("a given master address goes before the node's own") {
  WorkerSetting setting = kSetting;
  setting.master_address = "head";
  const auto entries = worker_environment({}, setting, two_nodes(), {8, 0}, -1, "");
  CHECK(std::count(entries.begin(), entries.end(), "MASTER_ADDR=head") == 1);
  CHECK(std::count(entries.begin(), entries.end(), "MASTER_ADDR=10.0.0.1") == 0);
}

namespace {

std::string argument(const std::string& text) { return worker_arguments({"program", text}, 12)[1]; }

}  // namespace

TEST_CASE("${local_rank} is replaced wherever it stands in an argument, with and without braces") {
  CHECK(argument("--gpu=${local_rank}") == "--gpu=12");
  CHECK(argument("${local_rank}-${local_rank}") == "12-12");
  CHECK(argument("$local_rank,$local_rank") == "12,12");
  CHECK(argument("${local_rank}}") == "12}");
  CHECK(argument("") == "");
}

TEST_CASE("other names, open braces and single dollars in an argument stay as they are") {
  for (const char* text : {"$local_ranks", "$LOCAL_RANK", "${HOME}", "${local_rank", "${local_rank }", "${}",
                           "$5", "$(local_rank)", "a$", "^x$|y"}) {
    CHECK(argument(text) == text);
  }
  CHECK(argument("$local_rank\xc3\x9f") == "12\xc3\x9f");  // no letter of a name
}

TEST_CASE("two dollars in an argument are one, and hide what follows") {
  CHECK(argument("$$") == "$");
  CHECK(argument("$$$") == "$$");
  CHECK(argument("$${local_rank}") == "${local_rank}");
  CHECK(argument("$$$local_rank") == "$12");
}

TEST_CASE("the program's own name is taken as it is") {
  CHECK(worker_arguments({"/opt/a$$b/${local_rank}", "x"}, 12)[0] == "/opt/a$$b/${local_rank}");
}

}  // namespace dtrun::environment_test
