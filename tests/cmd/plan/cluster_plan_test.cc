// The parts of a plan that come from the cluster which started dtrun, and options that conflict with it.
#include <doctest/doctest.h>

#include <map>

#include "cmd/plan/make_job_spec.h"
#include "cmd/plan/plan_json.h"
#include "tests/cmd/plan/planned.h"
#include "tests/support/files.h"

namespace dtrun::cluster_plan_test {

using namespace dtrun::cmd;
using test::contains;

namespace {

constexpr char kJobKey[] = "dtk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

struct Around {
  Variables variables = {};
  std::string hostname = "n3";
  std::string hosts_file = {};
  int gpus = 0;
};

Result<JobSpec> planned(const std::vector<std::string>& arguments, const Around& around) {
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = around.variables.find(name);
    if (found != around.variables.end()) return found->second.c_str();
    return name == std::string("DTRUN_KEY") ? kJobKey : nullptr;
  };
  const auto parsed = parse_command_line(arguments, environment);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  Machine machine;
  machine.cpus = 8;
  machine.gpus = [&](bool) {
    GpuSight result{.driver = "580", .cuda = 13000};
    for (int i = 0; i < around.gpus; ++i)
      result.gpus.push_back({.index = i, .number = i, .name = "H", .memory = 1});
    if (around.gpus == 0) result.why_none = "no NVIDIA driver";
    return result;
  };
  machine.is_home = [](const std::string& host) { return host == "10.0.0.1"; };
  machine.cluster = ClusterEnvironment{.variables = around.variables,
                                       .hostname = around.hostname,
                                       .file = [&](const std::string&) { return around.hosts_file; }};
  return make_job_spec(parsed.value(), machine, environment, [](const std::string&) {});
}

JobSpec plan_of(const std::vector<std::string>& arguments, const Around& around) {
  const auto spec = planned(arguments, around);
  REQUIRE_MESSAGE(spec.ok(), spec.status().message());
  return spec.value();
}

std::string refusal_of(const std::vector<std::string>& arguments, const Around& around) {
  const auto spec = planned(arguments, around);
  REQUIRE_FALSE(spec.ok());
  CHECK(spec.status().exit_code() == kExitUsage);
  return spec.status().message();
}

std::vector<std::string> hosts(const JobSpec& spec) { return hosts_of(spec.rendezvous.hosting); }

Around in_step(const Variables& more = {}) {
  Around around{.variables = {{"SLURM_JOB_ID", "4711"},
                              {"SLURM_JOB_NUM_NODES", "3"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NODELIST", "n[1-3]"},
                              {"SLURM_STEP_NUM_NODES", "3"},
                              {"SLURM_STEP_NUM_TASKS", "3"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                              {"SLURM_NODEID", "2"},
                              {"SLURM_PROCID", "2"},
                              {"SLURM_LOCALID", "0"}}};
  for (const auto& [name, value] : more) around.variables[name] = value;
  return around;
}

// Task 1 of two on the first of two nodes.
Around with_tasks(const Variables& more = {}) {
  Around around = in_step({{"SLURM_STEP_NODELIST", "n[1-2]"},
                           {"SLURM_STEP_NUM_NODES", "2"},
                           {"SLURM_STEP_NUM_TASKS", "4"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_PROCID", "1"},
                           {"SLURM_LOCALID", "1"}});
  for (const auto& [name, value] : more) around.variables[name] = value;
  return around;
}

}  // namespace

TEST_CASE("srun dtrun is a whole command line") {
  const JobSpec spec = plan_of({"--", "x"}, in_step());
  CHECK(spec.nodes.min == 3);
  CHECK(spec.nodes.max == 3);
  CHECK(spec.node_rank == 2);
  CHECK_FALSE(spec.preferred_rank);
  CHECK_FALSE(spec.is_replaced);
  CHECK(spec.run_id == "4711.0");
  CHECK(host(spec) == "n1");
  CHECK(port(spec) == 10240 + 8 * (4711 * 31 % 2048));
  CHECK(candidates(spec).ports.size() == 8);
  CHECK(candidates(spec).hosts == std::vector<std::string>{"n1", "n2", "n3"});
  CHECK(candidates(spec).own == 2);
  CHECK(candidates(spec).first_start);
  CHECK(spec.rendezvous.key);
  CHECK(spec.nproc == 1);
  CHECK(spec.may_be_started_again);
  CHECK(contains(plan_json(spec), "\"place\": \"Slurm step 4711.0: node 2 of 3 (n3), coordinator n1:"));
  CHECK(candidates(plan_of({"--", "x"}, in_step({{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "0"}}))).own == 0);
}

TEST_CASE("what the options say counts more") {
  const JobSpec spec = plan_of({"--nnodes", "2:3", "--rdzv_id", "mine", "--node_rank", "0",
                                "--nproc_per_node", "4", "--rdzv_conf", "is_host=1", "--", "x"},
                               in_step());
  CHECK(spec.nodes.min == 2);
  CHECK(spec.run_id == "mine");
  CHECK(spec.node_rank == 0);
  CHECK(spec.nproc == 4);
  CHECK(may_host(spec.rendezvous.hosting) == true);
  CHECK(host(spec) == "n1");

  const JobSpec store = plan_of({"--rdzv_endpoint", "store:1", "--", "x"}, in_step());
  CHECK(store.nodes.max == 3);
  CHECK(host(store) == "store");
  CHECK(port(store) == 1);
  CHECK(ports_of(store.rendezvous.hosting).size() == 1);
  CHECK(hosts(store).size() == 1);
  CHECK_FALSE(may_host(store.rendezvous.hosting));
  CHECK(contains(store.place, "coordinator store:1"));

  // All by hand, as it was before dtrun knew of Slurm; the way to end is Slurm's all the same.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--nnodes", "2", "--rdzv_endpoint", "n1", "--", "x"},
        {"--standalone", "--", "x"},
        {"--nnodes", "3", "--master_addr", "n1", "--node_rank", "1", "--", "x"}}) {
    const JobSpec own = plan_of(words, in_step());
    CHECK(own.place.empty());
    CHECK(own.run_id != "4711.0");
    CHECK(own.may_be_started_again);
  }
  CHECK(host(plan_of({"--", "x"}, in_step({{"PET_NNODES", "3"}, {"PET_RDZV_ENDPOINT", "a:7"}}))) == "a");
  CHECK(plan_of({"--", "x"}, in_step({{"DTRUN_RDZV_ID", "other"}})).run_id == "other");
}

TEST_CASE("shapes that no job can have are refused with what to type") {
  CHECK(contains(refusal_of({"--nnodes", "2", "--", "x"}, in_step()),
                 "--nnodes=2: Slurm step 4711.0 has 3 nodes; leave it out"));
  CHECK(contains(refusal_of({"--nnodes", "1", "--", "x"}, in_step()), "leave it out"));
  CHECK(contains(refusal_of({"--nnodes", "4:8", "--", "x"}, in_step()), "leave it out"));
  CHECK(plan_of({"--nnodes", "3:8", "--", "x"}, in_step()).nodes.max == 8);
  CHECK(contains(refusal_of({"--nproc_per_node", "8", "--", "x"}, with_tasks()),
                 "srun -N2 --ntasks-per-node=1"));
  CHECK(
      contains(refusal_of({"--nproc_per_node", "cpu", "--", "x"}, with_tasks()), "each of them one worker"));
  CHECK(contains(
      refusal_of({"--nnodes", "2", "--", "x"}, with_tasks()),
      "has 4 tasks, each of them a node of one worker; leave it out, or start one dtrun on each node: srun "
      "-N2 --ntasks-per-node=1"));
  Around shell{.variables = {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NUM_NODES", "3"}}};
  CHECK(contains(refusal_of({"--nnodes", "3", "--", "x"}, shell), "srun --ntasks-per-node=1"));
  CHECK(refusal_of({"--", "x"}, in_step({{"SLURM_NODEID", "abc"}})) ==
        "Slurm step 4711.0: SLURM_NODEID=abc: expected a number from 0 to 1073741824; --standalone runs on "
        "this node "
        "alone");
  CHECK(alone(plan_of({"--standalone", "--", "x"}, in_step({{"SLURM_NODEID", "abc"}}))));
}

TEST_CASE("several tasks on a node are a worker each") {
  const JobSpec spec = plan_of({"--", "x"}, with_tasks());
  CHECK(spec.nodes.max == 4);
  CHECK(spec.node_rank == 1);
  CHECK(spec.nproc == 1);
  CHECK(spec.first_local_rank == 1);
  CHECK(spec.local_world_size == 2);
  CHECK(may_host(spec.rendezvous.hosting) == false);
  CHECK(hosts(spec).size() == 1);  // two nodes
  CHECK(plan_of({"--nproc_per_node", "1", "--", "x"}, with_tasks()).nproc == 1);
  CHECK(plan_of({"--", "x"}, with_tasks({{"PET_NPROC_PER_NODE", "auto"}})).nproc == 1);
  // --gpu-bind gives each its own GPU, which is its device 0; without it they share the node's.
  CHECK(plan_of({"--", "x"}, with_tasks({{"CUDA_VISIBLE_DEVICES", "1"}})).first_local_rank == 0);
  CHECK(plan_of({"--", "x"}, with_tasks({{"CUDA_VISIBLE_DEVICES", "0,1"}})).first_local_rank == 1);
  // Cores are the task's, whether or not Slurm holds it to them.
  CHECK(plan_of({"--", "x"}, with_tasks({{"SLURM_CPUS_ON_NODE", "8"}})).omp_num_threads == 4);
  CHECK(plan_of({"--", "x"}, with_tasks({{"SLURM_CPUS_ON_NODE", "64"}})).omp_num_threads == 8);
}

TEST_CASE("of three nodes or more the first task on each of the first three may have the coordinator") {
  const auto spec_of = [](const char* node, const char* task, const char* local,
                          std::vector<std::string> words = {"--", "x"}) {
    return plan_of(words, in_step({{"SLURM_STEP_NODELIST", "n[1-4]"},
                                   {"SLURM_STEP_NUM_NODES", "4"},
                                   {"SLURM_STEP_NUM_TASKS", "8"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"},
                                   {"SLURM_NODEID", node},
                                   {"SLURM_PROCID", task},
                                   {"SLURM_LOCALID", local}}));
  };
  const std::vector<std::string> three{"n1", "n2", "n3"};
  for (const auto& [node, task, local, own] :
       {std::tuple("0", "0", "0", 0), std::tuple("0", "4", "1", -1), std::tuple("1", "1", "0", 1),
        std::tuple("2", "2", "0", 2), std::tuple("2", "6", "1", -1), std::tuple("3", "3", "0", -1)}) {
    const JobSpec spec = spec_of(node, task, local);
    CHECK(candidates(spec).hosts == three);
    CHECK(candidates(spec).own == own);
    CHECK(contains(list_of(candidates(spec), spec.run_id), "n1,n2,n3 port "));
    CHECK(contains(list_of(candidates(spec), spec.run_id), " of run 4711.0"));
  }
  CHECK(hosts(spec_of("0", "0", "0", {"--rdzv_conf", "failover=never", "--", "x"})).size() == 1);
}

TEST_CASE("a node has a worker for each GPU of the step, unless somebody says otherwise") {
  Around gpus = in_step();
  gpus.gpus = 4;
  CHECK(plan_of({"--", "x"}, gpus).nproc == 4);
  CHECK(plan_of({"--nproc_per_node", "2", "--", "x"}, gpus).nproc == 2);
  CHECK(plan_of({"--", "x"}, {.variables = {}, .gpus = 4}).nproc == 1);  // outside all is as it was
}

TEST_CASE("in an allocation without srun one node runs, and says so") {
  const Around shell{.variables = {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NUM_NODES", "3"}}};
  const JobSpec spec = plan_of({"--", "x"}, shell);
  CHECK(alone(spec));
  CHECK(contains(spec.place, "Slurm job 4711: one node, although the job has 3"));
  CHECK_FALSE(spec.may_be_started_again);
}

TEST_CASE("outside of all nothing is said, and nothing changes") {
  const JobSpec spec = plan_of({"--", "x"}, {});
  CHECK(spec.place.empty());
  CHECK(alone(spec));
  CHECK(spec.run_id.size() == 8);
  CHECK(contains(plan_json(spec), "\"place\": null"));
}

TEST_CASE("pods need nothing but how many they are") {
  const Around pod{.variables = {{"JOB_COMPLETION_INDEX", "2"}, {"PET_NNODES", "3"}},
                   .hostname = "mnist-2",
                   .hosts_file = "10.1.0.7 mnist-2.mnist.default.svc.cluster.local mnist-2\n"};
  const JobSpec spec = plan_of({"--", "x"}, pod);
  CHECK(spec.nodes.max == 3);
  // A pod that is made anew may come before the old one is known to be gone.
  CHECK_FALSE(spec.node_rank);
  CHECK(spec.preferred_rank == 2);
  CHECK(spec.is_replaced);
  CHECK(contains(spec.place, "Kubernetes Job mnist: node 2 of 3 (mnist-2)"));
  CHECK(host(spec) == "mnist-0.mnist.default.svc.cluster.local");
  CHECK(port(spec) == 29400);
  CHECK(spec.run_id == "mnist");
}

TEST_CASE("of three pods each may have the coordinator, where two of them are there from the start") {
  const auto spec_of = [](const std::string& pod, const std::string& nodes) {
    const std::string name = "mnist-" + pod;
    return plan_of({"--", "x"},
                   {.variables = {{"JOB_COMPLETION_INDEX", pod}, {"PET_NNODES", nodes}},
                    .hostname = name,
                    .hosts_file = "10.1.0.7 " + name + ".mnist.default.svc.cluster.local " + name + "\n"});
  };
  const std::vector<std::string> three{"mnist-0.mnist.default.svc.cluster.local",
                                       "mnist-1.mnist.default.svc.cluster.local",
                                       "mnist-2.mnist.default.svc.cluster.local"};
  for (const char* nodes : {"3", "8", "3:4"}) {
    CAPTURE(nodes);
    for (const auto& [pod, own] : {std::pair("0", 0), std::pair("2", 2), std::pair("3", -1)}) {
      if (*pod == '3' && *nodes == '3' && nodes[1] == 0) continue;
      const JobSpec spec = spec_of(pod, nodes);
      CHECK(candidates(spec).hosts == three);
      CHECK(candidates(spec).own == own);
    }
  }
  for (const char* nodes : {"2", "2:4", "1:3"}) {
    const JobSpec spec = spec_of("1", nodes);
    CHECK(hosts(spec).size() == 1);
    CHECK(may_host(spec.rendezvous.hosting) == false);
  }
}

TEST_CASE("what can be no host's name is no place to meet") {
  for (const char* leader : {"a b", "http://a", "a,b", "\n"})
    CHECK(contains(refusal_of({"--", "x"}, {.variables = {{"LWS_LEADER_ADDRESS", leader},
                                                          {"LWS_GROUP_SIZE", "2"},
                                                          {"LWS_WORKER_INDEX", "1"}}}),
                   "LeaderWorkerSet names a first node that can be no host"));
}

TEST_CASE("where a launcher does not say where nodes meet, an endpoint must") {
  const Variables mpi = {{"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  Around around{.variables = mpi};
  CHECK(contains(refusal_of({"--", "x"}, around),
                 "Open MPI does not say where its nodes can meet: add "
                 "--rdzv_endpoint HOST[:PORT]"));
  around.variables["OMPI_MCA_orte_hnp_uri"] = "7.0;tcp://10.0.0.2:1";
  CHECK(contains(refusal_of({"--", "x"}, around), "was started on 10.0.0.2"));
  CHECK(plan_of({"--rdzv_endpoint", "a", "--", "x"}, around).nodes.max == 2);
  around.variables["OMPI_MCA_orte_hnp_uri"] = "7.0;tcp://10.0.0.1:1";
  CHECK(may_host(plan_of({"--", "x"}, around).rendezvous.hosting) == true);
  around.variables["OMPI_COMM_WORLD_RANK"] = "1";
  CHECK(host(plan_of({"--", "x"}, around)) == "10.0.0.1");
}

}  // namespace dtrun::cluster_plan_test
