// The place of a process in a cluster, from its environment: environments as they were read off real systems
// (Slurm 22.05, Open MPI 4.1, a kubelet's files) or as their documentation has them.
#include "cmd/cluster/place.h"

#include <doctest/doctest.h>

namespace dtrun::place_test {

using namespace dtrun::cmd;

namespace {

using Variables = std::map<std::string, std::string>;

ClusterEnvironment cluster(const Variables& variables, const std::string& hostname = "host",
                           const std::string& file = "") {
  return {.variables = variables, .hostname = hostname, .file = [file](const std::string&) { return file; }};
}

Place found(const ClusterEnvironment& cluster, const GivenOptions& said = {}) {
  const auto place = find_place(cluster, said);
  REQUIRE_MESSAGE(place.ok(), place.status().message());
  REQUIRE(place.value());
  return *place.value();
}

bool is_outside(const ClusterEnvironment& cluster, const GivenOptions& said = {}) {
  const auto place = find_place(cluster, said);
  return place.ok() && !place.value();
}

std::string refused(const ClusterEnvironment& cluster, const GivenOptions& said = {}) {
  const auto place = find_place(cluster, said);
  REQUIRE_FALSE(place.ok());
  CHECK(place.status().exit_code() == kExitUsage);
  return place.status().message();
}

// `srun -N3` of Slurm 22.05, the task on the third node.
Variables step() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOB_NUM_NODES", "3"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[1-3]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURM_NODEID", "2"},
          {"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_CPUS_ON_NODE", "8"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.1"}};
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

}  // namespace

TEST_CASE("outside of any cluster there is no place") {
  CHECK(is_outside(cluster({})));
  CHECK(is_outside(cluster({{"PATH", "/bin"}, {"SLURM_CONF", "/etc/slurm.conf"}, {"OMPI_MCA_btl", "tcp"}})));
}

TEST_CASE("a task of a step is a node, and the first node of the step has the coordinator") {
  const Place place = found(cluster(step()));
  CHECK(place.job == "Slurm step 4711.0");
  CHECK(place.agents == 3);
  CHECK(place.rank == 2);
  CHECK(place.node == "n3");
  CHECK(place.first == "n1");
  CHECK(place.hosts == false);
  CHECK(place.run_id == "4711.0");
  CHECK(place.ports.size() == 8);
  CHECK_FALSE(place.several_tasks);
  CHECK(place.cpus == 8);
  CHECK(place_line(place, 3, "n1:17728") == "Slurm step 4711.0: node 2 of 3 (n3), coordinator n1:17728");
  CHECK(may_be_started_again(cluster(step())));

  const Place first = found(cluster(with(step(), {{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "0"}})));
  CHECK(first.hosts == true);
  CHECK(first.ports == place.ports);
  // Another step of the job at the same time.
  const Place beside = found(cluster(with(step(), {{"SLURM_STEP_ID", "1"}})));
  CHECK(beside.run_id == "4711.1");
  CHECK(beside.ports.front() > place.ports.back());
}

TEST_CASE("a step of one node") {
  const Place place = found(cluster({{"SLURM_JOB_ID", "7"},
                                     {"SLURM_STEP_ID", "3"},
                                     {"SLURM_STEP_NODELIST", "n2"},
                                     {"SLURM_STEP_NUM_NODES", "1"},
                                     {"SLURM_STEP_NUM_TASKS", "1"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                     {"SLURM_NODEID", "0"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_LOCALID", "0"}}));
  CHECK(place.agents == 1);
  CHECK(place_line(place, 1, "") == "Slurm step 7.3: one node (n2)");
  CHECK_FALSE(place.cpus);
}

TEST_CASE("where a node of the step has several tasks, each is one worker") {
  // srun -n3 -N2
  const Variables shape = with(step(), {{"SLURM_STEP_NODELIST", "n[1-2]"},
                                        {"SLURM_STEP_NUM_NODES", "2"},
                                        {"SLURM_STEP_TASKS_PER_NODE", "2,1"}});
  const Place second =
      found(cluster(with(shape, {{"SLURM_NODEID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}})));
  CHECK(second.several_tasks);
  CHECK(second.agents == 3);
  CHECK(second.rank == 1);
  CHECK(second.local_rank == 1);
  CHECK(second.tasks == 2);
  CHECK(second.hosts == false);  // the task beside it does
  CHECK(second.cpus == 4);
  CHECK(place_line(second, 3, "n1:1") ==
        "Slurm step 4711.0: task 1 of 3 (n1), each one worker, coordinator n1:1");
  // The one alone on its node is one worker as well.
  const Place third = found(cluster(with(shape, {{"SLURM_NODEID", "1"}})));
  CHECK(third.several_tasks);
  CHECK(third.rank == 2);
  CHECK(third.local_rank == 0);
  CHECK(third.tasks == 1);
  CHECK(third.cpus == 8);
  CHECK(found(cluster(with(shape, {{"SLURM_NODEID", "1"}, {"SLURM_CPUS_PER_TASK", "3"}}))).cpus == 3);
}

TEST_CASE("a job's script and the shell of salloc run on one node, and are told how to use the others") {
  const Variables job = {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_NODEID", "0"},
                         {"SLURM_PROCID", "0"},    {"SLURM_LOCALID", "0"},       {"SLURM_NTASKS", "3"}};
  for (const Variables& one : {job, with(job, {{"SLURM_STEP_ID", "4294967290"}}),  // use_interactive_step
                               with(job, {{"SLURM_STEP_ID", "4294967291"}})}) {    // the batch step
    const Place place = found(cluster(one));
    CHECK(place.agents == 1);
    CHECK(place.run_id.empty());
    CHECK(place_line(place, 1, "") ==
          "Slurm job 4711: one node, although the job has 3; srun --ntasks-per-node=1 before dtrun starts it "
          "on all of them");
    CHECK_FALSE(may_be_started_again(cluster(one)));
  }
  CHECK(is_outside(cluster(with(job, {{"SLURM_JOB_NUM_NODES", "1"}}))));
  CHECK(is_outside(cluster(with(job, {{"SLURM_JOB_NUM_NODES", "abc"}}))));
}

TEST_CASE("what Slurm would never say is refused by name") {
  for (const char* name :
       {"SLURM_STEP_NUM_NODES", "SLURM_NODEID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID",
        "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"}) {
    for (const char* value :
         {"", "abc", "-1", "+1", " 1", "1 ", "99999999999999999999", "0x1", "1.0", "[", "\n"}) {
      // A node may be called almost anything, but there must be three.
      const std::string message = refused(cluster(with(step(), {{name, value}})));
      CHECK_MESSAGE(message.find("Slurm") == 0, message);
      CHECK_MESSAGE(message.find("--standalone") != std::string::npos, message);
      CHECK_MESSAGE(message.find('\n') == std::string::npos, message);
    }
    CHECK(refused(cluster(without(step(), name))).find("Slurm") == 0);
  }
  const Variables contradictions[] = {{{"SLURM_STEP_NUM_NODES", "2"}},
                                      {{"SLURM_STEP_NODELIST", "n[1-4]"}},
                                      {{"SLURM_STEP_NUM_TASKS", "4"}},
                                      {{"SLURM_STEP_TASKS_PER_NODE", "3"}},
                                      {{"SLURM_NODEID", "3"}},
                                      {{"SLURM_PROCID", "3"}},
                                      {{"SLURM_LOCALID", "1"}},
                                      {{"SLURM_STEP_NUM_NODES", "0"}},
                                      {{"SLURM_STEP_NUM_TASKS", "0"}},
                                      {{"SLURM_STEP_ID", "abc"}},
                                      {{"SLURM_STEP_TASKS_PER_NODE", "2,1,0"}}};
  for (const Variables& one : contradictions) {
    const std::string message = refused(cluster(with(step(), one)));
    CHECK_MESSAGE(message.find("Slurm") == 0, message);
  }
  // Variables that are not needed may have any value.
  const Place place = found(cluster(with(
      step(), {{"SLURM_NTASKS", "abc"}, {"SLURM_CPUS_ON_NODE", "many"}, {"SLURM_CPUS_PER_TASK", "-4"}})));
  CHECK_FALSE(place.cpus);
}

TEST_CASE("a worker that starts dtrun is no task of its own") {
  const Variables inside = with(step(), {{"DTRUN_PROCESS_TAG", "x"}});
  CHECK(is_outside(cluster(inside)));
  CHECK_FALSE(may_be_started_again(cluster(inside)));
}

TEST_CASE("mpirun inside a step is what started the process; srun's own PMI is not") {
  const Variables mpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_MCA_orte_hnp_uri", "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}};
  const Place place = found(cluster(with(step(), mpi)));
  CHECK(place.job == "Open MPI");
  CHECK(place.agents == 4);
  CHECK(place.rank == 3);
  CHECK(place.local_rank == 1);
  CHECK(place.several_tasks);
  CHECK(place.first == "10.96.0.1");
  CHECK(place.guessed);
  CHECK(place.run_id == "mpi-1531576320");
  // One process is a program that somebody ran under mpirun.
  CHECK(found(cluster(with(step(), with(mpi, {{"OMPI_COMM_WORLD_SIZE", "1"},
                                              {"OMPI_COMM_WORLD_RANK", "0"},
                                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}))))
            .job == "Slurm step 4711.0");
  CHECK(refused(cluster(with(mpi, {{"OMPI_COMM_WORLD_RANK", "4"}}))).find("Open MPI") == 0);
  CHECK(refused(cluster(with(mpi, {{"OMPI_COMM_WORLD_SIZE", "x"}}))).find("OMPI_COMM_WORLD_SIZE=x") !=
        std::string::npos);

  CHECK(found(cluster(with(step(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}))).job == "Slurm step 4711.0");
  const Variables hydra = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const Place mpich = found(cluster(with(step(), hydra)));
  CHECK(mpich.job == "MPICH");
  CHECK(mpich.first == "localhost");
  CHECK(mpich.run_id.empty());
  CHECK(found(cluster(with(hydra, {{"PMI_SIZE", "8"}}))).first.empty());  // PMI names no host
  CHECK(found(cluster(with(hydra, {{"PALS_RANKID", "1"}, {"PMI_LOCAL_RANK", "0"}, {"PMI_LOCAL_SIZE", "1"}})))
            .job == "PALS");
}

TEST_CASE("mpirun's host is a numeric address, or it is not known") {
  const auto host = [](const std::string& uri) {
    return found(cluster({{"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                          {"OMPI_MCA_orte_hnp_uri", uri}}))
        .first;
  };
  CHECK(host("1.0;tcp://10.0.0.7:40000") == "10.0.0.7");
  CHECK(host("1.0;tcp6://[fe80::1]:40000;tcp://10.0.0.7:1") == "10.0.0.7");
  for (const char* uri : {"", "1.0;usock", "tcp://", "tcp://:1", "tcp://;rm -rf:1", "tcp://evil host:1"})
    CHECK_MESSAGE(host(uri).find_first_not_of("0123456789.") == std::string::npos, uri);
}

TEST_CASE("a pod of an Indexed Job knows itself by its host name and its line of /etc/hosts") {
  const std::string hosts =
      "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"
      "10.244.1.7\tmnist-2.mnist.default.svc.cluster.local\tmnist-2\n";
  const ClusterEnvironment pod = cluster({{"JOB_COMPLETION_INDEX", "2"}}, "mnist-2", hosts);
  const Place place = found(pod, {.nodes = true});
  CHECK(place.job == "Kubernetes Job mnist");
  CHECK_FALSE(place.agents);
  CHECK(place.rank == 2);
  CHECK(place.first == "mnist-0.mnist.default.svc.cluster.local");
  CHECK(place.hosts == false);
  CHECK(place.run_id == "mnist");
  CHECK(place.ports.empty());
  CHECK(place_line(place, 3, "mnist-0.mnist:29400") ==
        "Kubernetes Job mnist: node 2 of 3 (mnist-2), coordinator mnist-0.mnist:29400");
  CHECK(refused(pod).find("--nnodes N or PET_NNODES says how many") != std::string::npos);

  const ClusterEnvironment first = cluster({{"JOB_COMPLETION_INDEX", "0"}}, "mnist-0",
                                           "10.1.1.1 mnist-0.mnist.ns.svc.cluster.local mnist-0");
  CHECK_FALSE(found(first, {.nodes = true}).hosts);  // its own name says so
  CHECK(place_line(found(first), 1, "") ==
        "Kubernetes Job mnist: one node (mnist-0), although its pods have names to meet by; --nnodes N or "
        "PET_NNODES "
        "says how many");

  // A JobSet's pods: SET-REPLICATED-J-I in the subdomain SET.
  const ClusterEnvironment set = cluster({{"JOB_COMPLETION_INDEX", "1"}}, "js-node-0-1",
                                         "10.1.1.1 js-node-0-1.js.ns.svc.cluster.local js-node-0-1");
  CHECK(found(set, {.nodes = true}).first == "js-node-0-0.js.ns.svc.cluster.local");
}

TEST_CASE("pods without names for each other are jobs of their own, unless somebody says otherwise") {
  const ClusterEnvironment pod = cluster({{"JOB_COMPLETION_INDEX", "2"}}, "mnist-2", "10.244.1.7\tmnist-2\n");
  CHECK(is_outside(pod));
  CHECK(found(pod, {.nodes = true}).first.empty());
  // With hostNetwork the host name is the node's.
  CHECK(is_outside(cluster({{"JOB_COMPLETION_INDEX", "2"}}, "node7", "10.0.0.7 node7.example.com node7")));
  CHECK(
      refused(cluster({{"JOB_COMPLETION_INDEX", "x"}}, "mnist-x", "10.0.0.7 mnist-x.m mnist-x")).find("=x") !=
      std::string::npos);
}

TEST_CASE("LeaderWorkerSet tells all") {
  const Variables lws = {
      {"LWS_LEADER_ADDRESS", "w-0.w.default"}, {"LWS_GROUP_SIZE", "4"}, {"LWS_WORKER_INDEX", "3"}};
  const Place place = found(cluster(lws, "w-0-3"));
  CHECK(place.agents == 4);
  CHECK(place.rank == 3);
  CHECK(place.first == "w-0.w.default");
  CHECK(place.run_id == "w-0");
  CHECK(refused(cluster(with(lws, {{"LWS_WORKER_INDEX", "4"}})))
            .find("LWS_WORKER_INDEX=4 of LWS_GROUP_SIZE=4") != std::string::npos);
}

TEST_CASE("Volcano names the pods of all tasks, the master's first") {
  const Variables job = {{"VC_TASK_INDEX", "1"},
                         {"VC_WORKER_HOSTS", "pt-worker-0.pt,pt-worker-1.pt"},
                         {"VC_WORKER_NUM", "2"},
                         {"VC_MASTER_HOSTS", "pt-master-0.pt"},
                         {"VC_MASTER_NUM", "1"}};
  const Place worker = found(cluster(job, "pt-worker-1"));
  CHECK(worker.agents == 3);
  CHECK(worker.rank == 2);
  CHECK(worker.first == "pt-master-0.pt");
  CHECK(worker.run_id == "pt");
  CHECK(found(cluster(with(job, {{"VC_AUX_HOSTS", "pt-aux-0.pt"}}), "pt-master-0")).rank == 0);
  CHECK(refused(cluster(job, "other")).find("not among") != std::string::npos);
  CHECK(refused(cluster(with(job, {{"VC_WORKER_HOSTS", "a,,b"}}), "pt-worker-1")).find("VC_WORKER_HOSTS") !=
        std::string::npos);
  CHECK(is_outside(cluster({{"VC_TASK_INDEX", "0"}}, "x")));
}

TEST_CASE("clouds and other batch systems") {
  const Variables sky = {{"SKYPILOT_NODE_RANK", "1"},
                         {"SKYPILOT_NUM_NODES", "2"},
                         {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.5"},
                         {"SKYPILOT_TASK_ID", "sky-2026-11-23_train-0"}};
  CHECK(found(cluster(sky)).first == "10.0.0.4");
  CHECK(found(cluster(sky)).node == "10.0.0.5");
  CHECK(refused(cluster(with(sky, {{"SKYPILOT_NODE_IPS", "10.0.0.4"}}))).find("1 addresses") !=
        std::string::npos);

  const Variables aws = {{"AWS_BATCH_JOB_NUM_NODES", "3"},
                         {"AWS_BATCH_JOB_NODE_INDEX", "2"},
                         {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"},
                         {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.9"},
                         {"AWS_BATCH_JOB_ID", "5f3c#2"}};
  CHECK(found(cluster(aws)).first == "10.0.0.9");
  CHECK(found(cluster(aws)).run_id == "5f3c");
  const Place main = found(cluster(
      without(with(aws, {{"AWS_BATCH_JOB_NODE_INDEX", "0"}}), "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"),
      "ip-10-0-0-9"));
  CHECK(main.hosts == true);
  CHECK(main.first == "ip-10-0-0-9");
  const Variables led_by_another = with(aws, {{"AWS_BATCH_JOB_MAIN_NODE_INDEX", "1"}});
  CHECK(found(cluster(with(led_by_another, {{"AWS_BATCH_JOB_NODE_INDEX", "1"}}))).hosts == true);
  CHECK(found(cluster(with(led_by_another, {{"AWS_BATCH_JOB_NODE_INDEX", "0"}}))).hosts == false);

  const Place lepton = found(cluster({{"LEPTON_JOB_WORKER_INDEX", "1"},
                                      {"LEPTON_JOB_TOTAL_WORKERS", "2"},
                                      {"LEPTON_JOB_WORKER_PREFIX", "train"},
                                      {"LEPTON_SUBDOMAIN", "jobs.local"}}));
  CHECK(lepton.first == "train-0.jobs.local");

  const Variables flux = {{"FLUX_JOB_ID", "f2AbC"},
                          {"FLUX_TASK_RANK", "3"},
                          {"FLUX_TASK_LOCAL_ID", "1"},
                          {"FLUX_JOB_SIZE", "4"},
                          {"FLUX_JOB_NNODES", "2"}};
  CHECK(found(cluster(flux)).agents == 4);
  CHECK(found(cluster(flux)).tasks == 2);
  CHECK(found(cluster(flux)).first.empty());
  CHECK(found(cluster(with(flux, {{"FLUX_JOB_NNODES", "1"}}))).first == "localhost");
  const Variables uneven = with(flux, {{"FLUX_JOB_SIZE", "5"}, {"FLUX_TASK_LOCAL_ID", "3"}});
  CHECK(found(cluster(uneven)).tasks == 4);  // beside 3 others, where an even share is 3
  CHECK(refused(cluster(with(flux, {{"FLUX_JOB_NNODES", "0"}}))).find("FLUX_JOB_NNODES=0") !=
        std::string::npos);

  const Place lsf = found(cluster({{"LSB_JOBID", "99"},
                                   {"JSM_NAMESPACE_RANK", "5"},
                                   {"JSM_NAMESPACE_SIZE", "6"},
                                   {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                                   {"JSM_NAMESPACE_LOCAL_SIZE", "1"}}));
  CHECK(lsf.rank == 5);
  CHECK_FALSE(lsf.several_tasks);
}

TEST_CASE("names with control characters or without end make no mess of a message") {
  const std::string wild = "a\n\x1b[31m" + std::string(5000, 'x');
  for (const Variables& job :
       {Variables{{"FLUX_JOB_ID", wild}, {"FLUX_TASK_RANK", "x"}},
        Variables{{"LSB_JOBID", wild}, {"JSM_NAMESPACE_RANK", "x"}},
        Variables{{"VC_TASK_INDEX", "0"}, {"VC_" + wild + "_HOSTS", "a,,b"}},
        Variables{{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", wild}},
        Variables{{"PBS_JOBID", wild}, {"PBS_NODEFILE", "f"}, {"PBS_TASKNUM", "2"}, {"PBS_NODENUM", wild}}}) {
    const std::string message = refused(cluster(job, wild, "a\nb\n"));
    CHECK(message.size() < 600);
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("PBS tells where its nodes are, and pbsdsh which one this is") {
  const Variables job = {{"PBS_JOBID", "123.server"},
                         {"PBS_NODEFILE", "/var/nodes"},
                         {"PBS_NODENUM", "0"},
                         {"PBS_TASKNUM", "1"}};
  const std::string nodes = "a.x\na.x\nb.x\n";
  CHECK(place_line(found(cluster(job, "a", nodes)), 1, "") ==
        "PBS job 123: one node, although the job has 2; pbsdsh before dtrun, or --hostfile $PBS_NODEFILE, "
        "starts it "
        "on all of them");
  CHECK(place_line(found(cluster(without(job, "PBS_TASKNUM"), "a", nodes)), 1, "") ==
        place_line(found(cluster(job, "a", nodes)), 1, ""));  // not every PBS sets the variable
  const Place place = found(cluster(with(job, {{"PBS_TASKNUM", "2"}, {"PBS_NODENUM", "1"}}), "b", nodes));
  CHECK(place.agents == 2);
  CHECK(place.first == "a.x");
  CHECK(place.node == "b.x");
  CHECK(place.run_id == "123.server");
  CHECK(is_outside(cluster(job, "a", "a.x\n")));
  CHECK(refused(cluster(with(job, {{"PBS_TASKNUM", "2"}, {"PBS_NODENUM", "2"}}), "b", nodes))
            .find("PBS_NODENUM=2") != std::string::npos);
}

}  // namespace dtrun::place_test
