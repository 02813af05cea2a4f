#include "cmd/plan/make_job_spec.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cmd/machine/device_choice.h"
#include "cmd/plan/plan_json.h"
#include "tests/support/folder.h"

using namespace dtrun;
using namespace dtrun::cmd;
using std::chrono::milliseconds;

namespace {

using Variables = std::map<std::string, std::string>;

constexpr char kKey[] = "dtk1_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

struct Planned {
  Result<JobSpec> spec;
  std::vector<std::string> notices;
};

GpuSight with_gpus(int count) {
  if (count == 0) return {.why_none = "no NVIDIA driver"};
  GpuSight sight{.driver = "580.65.06", .cuda = 13000};
  for (int i = 0; i < count; ++i)
    sight.gpus.push_back({.index = i, .number = i, .name = "NVIDIA H200", .memory = 150754820096});
  return sight;
}

Planned plan(const std::vector<std::string>& arguments, const Variables& variables = {}, int cpus = 8,
             int gpus = 0, bool bf16 = true, int built_for = 0) {
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    if (found != variables.end()) return found->second.c_str();
    const bool asks_for_key = name == std::string("DTRUN_TOKEN") && !variables.contains("HOME");
    return asks_for_key ? kKey : nullptr;
  };
  auto parsed = parse_command_line(arguments, environment);
  REQUIRE_MESSAGE(parsed.ok(), parsed.status().message());
  std::vector<std::string> notices;
  Machine machine;
  machine.cpus = cpus;
  machine.worker_binary = "/opt/dtrun-worker";
  machine.gpus = [&](bool) { return with_gpus(gpus); };
  machine.worker_cuda = built_for;
  machine.is_home = [](const std::string& host) { return host == "here"; };
  machine.bf16 = bf16;
  for (int id = 0; id < cpus; ++id) machine.topology.push_back({id, 0, 0, id, 0});
  auto spec = make_job_spec(parsed.value(), machine, environment,
                            [&](const std::string& text) { notices.push_back(text); });
  return {std::move(spec), notices};
}

JobSpec good(const std::vector<std::string>& arguments, const Variables& variables = {}, int cpus = 8,
             int gpus = 0) {
  Planned planned = plan(arguments, variables, cpus, gpus);
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  return planned.spec.value();
}

std::string bad(const std::vector<std::string>& arguments, int exit_code = kExitUsage,
                const Variables& variables = {}) {
  Planned planned = plan(arguments, variables);
  REQUIRE_FALSE(planned.spec.ok());
  CHECK(planned.spec.status().exit_code() == exit_code);
  return planned.spec.status().message();
}

// A directory with a config and a data set whose files begin as they should, gone at the end.
class Job {
 public:
  Job() {
    directory_ = std::filesystem::temp_directory_path() / ("dtrun_plan_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    write_idx("train-images-idx3-ubyte", {1, 28, 28});
    write_idx("train-labels-idx1-ubyte", {1});
    write_idx("t10k-images-idx3-ubyte", {1, 28, 28});
    write_idx("t10k-labels-idx1-ubyte", {1});
    nlohmann::json config = {{"output_dir", "out"},
                             {"model", {{"type", "convnet"}}},
                             {"data", {{"type", "fashion_mnist"}, {"path", directory_.string()}}},
                             {"launch", {{"nproc_per_node", 3}, {"max_restarts", 5}}}};
    std::ofstream(path()) << config;
  }
  ~Job() { std::filesystem::remove_all(directory_); }
  std::string path() const { return (directory_ / "job.json").string(); }
  std::filesystem::path directory() const { return directory_; }

 private:
  void write_idx(const std::string& name, const std::vector<int>& dims) {
    std::ofstream file(directory_ / name, std::ios::binary);
    file.put(0).put(0).put(8).put(static_cast<char>(dims.size()));
    std::size_t size = 1;
    for (int dim : dims) {
      file.put(0).put(0).put(0).put(static_cast<char>(dim));
      size *= static_cast<std::size_t>(dim);
    }
    file << std::string(size, '\0');
  }
  std::filesystem::path directory_;
};

}  // namespace

TEST_CASE("without options a program runs once, standalone") {
  const JobSpec spec = good({"--", "/bin/true"});
  CHECK(spec.rendezvous.standalone);
  CHECK(spec.nproc == 1);
  CHECK(spec.nodes.max == 1);
  CHECK(spec.max_restarts == 0);
  CHECK(spec.crash_loop_limit == 0);
  CHECK(spec.run_id.size() == 8);
  CHECK(std::get<ExternalProgram>(spec.program).argv == std::vector<std::string>{"/bin/true"});
}

TEST_CASE("nnodes takes a number or a range") {
  const std::vector<std::string> endpoint{"--rdzv_endpoint", "h:1", "--nnodes"};
  const auto nodes = [&](const std::string& text) {
    return good({"--rdzv_endpoint", "h:1", "--nnodes", text, "--", "x"}).nodes;
  };
  CHECK(nodes("3").min == 3);
  CHECK(nodes("3").max == 3);
  CHECK(nodes("1:4").min == 1);
  CHECK(nodes("1:4").max == 4);
  for (const char* wrong : {"0", "2:1", "a", "1:", ":2", "1:2:3", "-1", "1.5", "65537", "99999999999"}) {
    CHECK_MESSAGE(
        bad({"--rdzv_endpoint", "h:1", "--nnodes", wrong, "--", "x"}).find("expected N or MIN:MAX") !=
            std::string::npos,
        wrong);
  }
}

TEST_CASE("nproc_per_node counts cores and GPUs") {
  CHECK(good({"--nproc_per_node", "cpu", "--", "x"}).nproc == 8);
  CHECK(good({"--nproc_per_node", "auto", "--", "x"}).nproc == 8);
  CHECK(good({"--nproc_per_node", "auto", "--", "x"}, {}, 8, 2).nproc == 2);
  CHECK(good({"--nproc_per_node", "gpu", "--", "x"}, {}, 8, 2).nproc == 2);
  CHECK(good({"--nproc_per_node", "gpu", "--", "x"}, {}, 8, 2).gpus.size() == 2);
  CHECK(good({"--nproc_per_node", "2", "--", "x"}, {}, 8, 2).gpus.empty());  // it is the program's affair
  CHECK(bad({"--nproc_per_node", "gpu", "--", "x"}).find("no GPU") != std::string::npos);
  for (const char* wrong : {"many", "0", "16385", "2147483647"}) {
    CHECK(bad({"--nproc_per_node", wrong, "--", "x"}).find("a number of workers (1 to 16384)") !=
          std::string::npos);
  }
}

TEST_CASE("the endpoint may be a name, an IPv4 or an IPv6 address, with or without a port") {
  const auto endpoint = [&](const std::string& text) {
    const auto spec = good({"--nnodes", "2", "--rdzv_endpoint", text, "--", "x"});
    return spec.rendezvous.host + " " + std::to_string(spec.rendezvous.port);
  };
  CHECK(endpoint("node0") == "node0 29400");
  CHECK(endpoint("node0:1234") == "node0 1234");
  CHECK(endpoint("10.0.0.1:1234") == "10.0.0.1 1234");
  CHECK(endpoint("fe80::1") == "fe80::1 29400");
  CHECK(endpoint("[fe80::1]") == "fe80::1 29400");
  CHECK(endpoint("[fe80::1]:1234") == "fe80::1 1234");
  for (const char* wrong : {"node0:", "node0:0", "node0:65536", "node0:http", "[::1", "[::1]x", ":29400",
                            "http://node0:1", " node0:1", "node0 node1", "user@node0"}) {
    CHECK_MESSAGE(bad({"--nnodes", "2", "--rdzv_endpoint", wrong, "--", "x"}).find("--rdzv_endpoint=") == 0,
                  wrong);
  }
}

TEST_CASE("an address for peers is refused if nothing can resolve it, and an empty one is none") {
  const auto address = [](const std::string& option, const std::string& text) {
    return plan({"--nnodes", "2", "--node_rank", "0", "--rdzv_endpoint", "h", "--rdzv_backend", "static",
                 option, text, "--", "x"});
  };
  CHECK_FALSE(address("--local_addr", "two words").spec.ok());
  CHECK_FALSE(address("--master_addr", "tcp://h").spec.ok());
  CHECK(address("--local_addr", "fe80::1%eth0").spec.value().rendezvous.local_address == "fe80::1%eth0");
  CHECK(address("--local_addr", "").spec.value().rendezvous.local_address.empty());
}

TEST_CASE("several nodes without an endpoint are refused with the way out") {
  CHECK(bad({"--nnodes", "2", "--", "x"}).find("--rdzv_endpoint HOST[:PORT]") != std::string::npos);
  CHECK(bad({"--standalone", "--nnodes", "2", "--", "x"}).find("--standalone") != std::string::npos);
}

TEST_CASE("rdzv_conf sets timeouts; an unknown key suggests the nearest") {
  const auto spec = good(
      {"--rdzv_conf", "join_timeout=7,last_call_timeout=0.5,keep_alive_interval=2,keep_alive_max_attempt=4",
       "--", "x"});
  CHECK(spec.rendezvous.join_timeout == milliseconds(7000));
  CHECK(spec.rendezvous.last_call == milliseconds(500));
  CHECK(spec.rendezvous.keep_alive_timeout == milliseconds(8000));
  CHECK_FALSE(spec.rendezvous.read_timeout.has_value());
  CHECK(good({"--rdzv_conf", "read_timeout=2.5", "--", "x"}).rendezvous.read_timeout == milliseconds(2500));
  for (const std::string key :
       {"read_timeout=", "join_timeout=", "timeout=", "keep_alive_max_attempt=1,keep_alive_interval="}) {
    CAPTURE(key);
    CHECK(plan({"--rdzv_conf", key + "0.1", "--", "x"}).spec.ok());
    CHECK(bad({"--rdzv_conf", key + "0.099", "--", "x"}).find("at least 0.1 seconds") != std::string::npos);
  }
  CHECK(good({"--rdzv_conf", "timeout=3", "--", "x"}).rendezvous.join_timeout == milliseconds(3000));
  CHECK(good({"--rdzv_conf", "last_call_timeout=0", "--", "x"}).rendezvous.last_call == milliseconds(0));
  CHECK(bad({"--rdzv_conf", "is_hots=1", "--", "x"}).find("did you mean is_host?") != std::string::npos);
  CHECK(bad({"--rdzv_conf", "join_timeou=7", "--", "x"}).find("did you mean join_timeout?") !=
        std::string::npos);
  CHECK(bad({"--rdzv_conf", "join_timeout=soon", "--", "x"}).find("number of seconds") != std::string::npos);
  CHECK(bad({"--rdzv_conf", "join_timeout", "--", "x"}).find("KEY=SECONDS") != std::string::npos);
}

TEST_CASE("keys of c10d's store have no effect, spaces around a key are no fault") {
  const Planned planned = plan({"--nnodes", "2", "--rdzv_endpoint", "h", "--rdzv_conf",
                                "store_type=tcp, join_timeout = 7,close_timeout=60", "--", "x"});
  REQUIRE(planned.spec.ok());
  CHECK(planned.spec.value().rendezvous.join_timeout == milliseconds(7000));
  REQUIRE(planned.notices.size() == 2);
  CHECK(planned.notices[0] == "--rdzv_conf store_type has no effect: dtrun has no c10d store");
  CHECK(planned.notices[1].starts_with("--rdzv_conf close_timeout has no effect"));
}

TEST_CASE("is_host says who hosts the coordinator where addresses do not tell") {
  const auto conf = [](const std::string& value) {
    return std::vector<std::string>{
        "--nnodes", "2", "--rdzv_endpoint", "h", "--rdzv_conf", "is_host=" + value, "--", "x"};
  };
  CHECK_FALSE(good({"--nnodes", "2", "--rdzv_endpoint", "h", "--", "x"}).rendezvous.is_host.has_value());
  for (const char* yes : {"1", "true", "y"}) CHECK(good(conf(yes)).rendezvous.is_host == true);
  for (const char* no : {"0", "false", "n"}) CHECK(good(conf(no)).rendezvous.is_host == false);
  CHECK(bad(conf("maybe")).find("--rdzv_conf is_host=maybe: expected 1 or 0") != std::string::npos);
}

TEST_CASE(
    "of several hosts of the coordinator three take over from each other, and two where they are told to") {
  const auto planned = [](const std::string& hosts, const std::string& conf) {
    Planned planned = plan({"--nnodes", "2", "--rdzv_endpoint", hosts, "--rdzv_conf", conf, "--", "x"});
    REQUIRE(planned.spec.ok());
    return planned;
  };
  using Hosts = std::vector<std::string>;
  Planned three = planned("a,b,c:7", "last_call_timeout=1");
  CHECK(three.spec.value().rendezvous.host == "a");
  CHECK(three.spec.value().rendezvous.port == 7);
  CHECK(three.spec.value().rendezvous.hosts == Hosts{"a", "b", "c"});
  CHECK_FALSE(three.spec.value().rendezvous.takeover_alone);
  CHECK(three.notices.empty());
  CHECK(planned("a,b,c", "takeover=never").spec.value().rendezvous.hosts.empty());
  CHECK(planned("a,b,c", "takeover=always").notices.at(0).find("has no effect") != std::string::npos);

  const Planned two = plan({"--nnodes", "2", "--rdzv_endpoint", "a,b", "--", "x"});
  REQUIRE(two.spec.ok());
  CHECK(two.spec.value().rendezvous.host == "a");
  CHECK(two.spec.value().rendezvous.hosts.empty());
  CHECK(two.notices.at(0).find("b does not take over") != std::string::npos);
  CHECK(two.notices.at(0).find("takeover=always") != std::string::npos);
  CHECK(planned("a,b", "takeover=never").notices.empty());
  Planned always = planned("a,b", "takeover=always");
  CHECK(always.spec.value().rendezvous.hosts == Hosts{"a", "b"});
  CHECK(always.spec.value().rendezvous.takeover_alone);
  CHECK(always.notices.empty());

  CHECK(planned("a", "takeover=always").notices.at(0).find("names one host") != std::string::npos);
  CHECK(bad({"--nnodes", "2", "--rdzv_endpoint", "a,b", "--rdzv_conf", "takeover=yes", "--", "x"}) ==
        "--rdzv_conf takeover=yes: expected always or never");
  CHECK(bad({"--rdzv_conf", "take_over=never", "--", "x"}).find("did you mean takeover?") !=
        std::string::npos);
}

TEST_CASE("the env backend takes its place in the world from the environment") {
  const Variables variables{
      {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}};
  const JobSpec spec = good({"--rdzv_backend", "env", "--", "x"}, variables);
  CHECK(spec.nodes.min == 4);
  CHECK(spec.nodes.max == 4);
  CHECK(spec.node_rank == 2);
  CHECK(spec.nproc == 1);
  CHECK(spec.rendezvous.host == "10.0.0.1");
  CHECK(spec.rendezvous.port == 1235);
  CHECK(spec.rendezvous.master_port == 1234);
  CHECK(spec.rendezvous.master_address == "10.0.0.1");
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}).find("needs RANK") != std::string::npos);
  Variables last = variables;
  last["RANK"] = "3";
  last["MASTER_PORT"] = "65535";  // the one beside it is below
  CHECK(good({"--rdzv_backend", "env", "--", "x"}, last).rendezvous.port == 65534);
  last["MASTER_PORT"] = "65536";
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}, kExitUsage, last).find("at most 65535") !=
        std::string::npos);
  Variables outside = variables;
  outside["RANK"] = "4";
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}, kExitUsage, outside).find("less than WORLD_SIZE") !=
        std::string::npos);
}

TEST_CASE("an option without effect is named once instead of being ignored in silence") {
  const Planned planned = plan({"--standalone", "--rdzv_endpoint", "h:1", "--lanes", "2", "--", "x"});
  REQUIRE(planned.spec.ok());
  REQUIRE(planned.notices.size() == 2);
  CHECK(planned.notices[1] == "--lanes=2 has no effect: only the built-in trainer has lanes");
  CHECK(planned.notices[0] == "--rdzv_endpoint has no effect with --standalone");
}

TEST_CASE("what torchrun needs and dtrun does not is accepted, checked, and said to have no effect") {
  const Planned planned = plan({"--start_method", "fork", "--monitor_interval", "0.5", "--event_log_handler",
                                "null", "--logs_specs", "x", "--", "x"});
  REQUIRE(planned.spec.ok());
  REQUIRE(planned.notices.size() == 4);
  for (const std::string& notice : planned.notices) {
    CHECK_MESSAGE(notice.find(" has no effect: ") != std::string::npos, notice);
  }
  CHECK(bad({"--start_method", "thread", "--", "x"}).find("expected spawn, fork or forkserver") !=
        std::string::npos);
  CHECK(bad({"--monitor_interval", "often", "--", "x"}).find("number of seconds") != std::string::npos);
  CHECK(bad({"--rdzv_backend", "etcd-v2", "--", "x"}).find("no etcd is needed") != std::string::npos);
}

TEST_CASE("several workers share the cores, which is said in one line unless the user has chosen") {
  const Planned planned = plan({"--nproc_per_node", "3", "--", "x"});
  CHECK(planned.spec.value().omp_num_threads == 2);
  REQUIRE(planned.notices.size() == 1);
  CHECK(planned.notices[0] ==
        "OMP_NUM_THREADS=2 for each worker (8 cores, 3 workers; set it to have another)");
  CHECK(plan({"--nproc_per_node", "3", "--", "x"}, {{"OMP_NUM_THREADS", "1"}}).notices.empty());
  CHECK(plan({"--", "x"}).notices.empty());
  CHECK(good({"--nproc_per_node", "100", "--", "x"}).omp_num_threads == 1);
}

TEST_CASE("--master_addr and --master_port without an endpoint are torchrun's static rendezvous") {
  const JobSpec spec = good(
      {"--nnodes", "2", "--node_rank", "1", "--master_addr", "head", "--master_port", "29500", "--", "x"});
  CHECK(spec.rendezvous.host == "head");
  CHECK(spec.rendezvous.port == 29501);
  CHECK(spec.rendezvous.master_address == "head");
  CHECK(spec.rendezvous.master_port == 29500);
  const JobSpec v6 = good({"--nnodes", "2", "--node_rank", "0", "--master_addr", "[fd00::1]", "--", "x"});
  CHECK(v6.rendezvous.host == "fd00::1");
  CHECK(v6.rendezvous.port == 29400);
  CHECK(v6.rendezvous.master_port == 0);
  CHECK(bad({"--nnodes", "2", "--master_addr", "head", "--", "x"}).find("needs --node_rank") !=
        std::string::npos);
  CHECK(bad({"--master_port", "0", "--", "x"}).find("expected a port") != std::string::npos);
}

TEST_CASE("with an endpoint the port counts, the address only for static ranks") {
  const std::vector<std::string> common{"--nnodes",        "2",   "--node_rank",   "0",
                                        "--rdzv_endpoint", "h:1", "--master_addr", "head",
                                        "--master_port",   "5"};
  auto arguments = common;
  arguments.insert(arguments.end(), {"--rdzv_backend", "static", "--", "x"});
  const JobSpec fixed = good(arguments);
  CHECK(fixed.rendezvous.host == "h");
  CHECK(fixed.rendezvous.master_address == "head");
  CHECK(fixed.rendezvous.master_port == 5);
  arguments = common;
  arguments.insert(arguments.end(), {"--", "x"});
  const Planned elastic = plan(arguments);
  CHECK(elastic.spec.value().rendezvous.master_address.empty());
  CHECK(elastic.spec.value().rendezvous.master_port == 5);
  REQUIRE(elastic.notices.size() == 1);
  CHECK(elastic.notices[0].find("--master_addr has no effect") == 0);
}

TEST_CASE("one node has MASTER_ADDR and MASTER_PORT as given, and takes torchrun's port 0 for any") {
  const JobSpec spec = good({"--master_addr", "localhost", "--master_port", "4711", "--", "x"});
  CHECK(spec.rendezvous.standalone);
  CHECK(spec.rendezvous.master_address == "localhost");
  CHECK(spec.rendezvous.master_port == 4711);
  CHECK(good({"--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "--", "x"}).rendezvous.standalone);
  CHECK(good({"--rdzv_endpoint=", "--", "x"}).rendezvous.standalone);  // torchrun's default
  CHECK(bad({"--nnodes", "2", "--rdzv_endpoint=", "--", "x"}).find("several nodes need --rdzv_endpoint") ==
        0);
}

TEST_CASE("signals that end the job have names; those that nobody can handle are refused") {
  CHECK(good({"--signals_to_handle", "SIGTERM,SIGUSR1, USR2", "--", "x"}).signals_to_handle ==
        std::vector<int>{SIGTERM, SIGUSR1, SIGUSR2});
  CHECK(bad({"--signals_to_handle", "SIGUSR3", "--", "x"}).find("did you mean SIGUSR") != std::string::npos);
  CHECK(bad({"--signals_to_handle", "SIGKILL", "--", "x"}).find("cannot be handled") != std::string::npos);
}

TEST_CASE("the grace is also read from torch's own variable") {
  CHECK(good({"--", "x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}).shutdown_timeout == milliseconds(7000));
  CHECK(good({"--shutdown_timeout", "8", "--", "x"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}})
            .shutdown_timeout == milliseconds(8000));
}

TEST_CASE("hangs are looked for when asked to, and not sooner than a program may be silent") {
  CHECK(good({"--", "x"}).heartbeat_timeout == milliseconds(0));
  CHECK(good({"--heartbeat-timeout", "30", "--", "x"}).heartbeat_timeout == milliseconds(30000));
  CHECK(good({"--stall_timeout", "1.5", "--", "x"}).stall_timeout == milliseconds(1500));
  CHECK(good({"--stall_timeout", "0", "--", "x"}).stall_timeout == milliseconds(0));
  CHECK(good({"--stall_timeout", "1", "--", "x"}).stall_timeout == milliseconds(1000));
  CHECK(bad({"--stall_timeout", "0.999", "--", "x"}).find("at least 1 second") != std::string::npos);
  CHECK(bad({"--heartbeat_timeout", "soon", "--", "x"}).find("number of seconds") != std::string::npos);
}

TEST_CASE("virtual local ranks need a GPU for each worker") {
  CHECK(good({"--virtual_local_rank", "--nproc_per_node", "2", "--", "x"}).virtual_local_rank);
  CHECK(bad({"--virtual_local_rank", "--nproc_per_node", "3", "--", "x"}, kExitUsage,
            {{"CUDA_VISIBLE_DEVICES", "0,1"}})
            .find("CUDA_VISIBLE_DEVICES=0,1") != std::string::npos);
}

TEST_CASE("a NUMA binding that binds nothing is said to have no effect; an unknown one is refused") {
  CHECK(bad({"--numa_binding", "core", "--", "x"}).find("expected node, socket, exclusive or core-complex") !=
        std::string::npos);
  Planned planned = plan({"--numa_binding", "node", "--", "x"});
  REQUIRE(planned.spec.ok());
  CHECK(planned.spec.value().worker_cpus == std::vector<std::vector<int>>{{0, 1, 2, 3, 4, 5, 6, 7}});
  REQUIRE(planned.notices.size() == 1);
  CHECK(planned.notices[0].find("--numa_binding=node has no effect") == 0);
  planned =
      plan({"--numa_binding", "exclusive", "--nproc_per_node", "4", "--", "x"}, {{"OMP_NUM_THREADS", "1"}});
  CHECK(planned.spec.value().worker_cpus.at(3) == std::vector<int>{6, 7});
  CHECK(planned.notices.empty());
}

TEST_CASE("the run id must be fit for a path") {
  CHECK(good({"--rdzv_id", "exp-7.b_2", "--", "x"}).run_id == "exp-7.b_2");
  CHECK(good({"--rdzv_id", std::string(128, 'x'), "--", "x"}).run_id.size() == 128);
  for (const std::string& wrong :
       {std::string("a/b"), std::string(".."), std::string("a b"), std::string(129, 'x')}) {
    CHECK_MESSAGE(bad({"--rdzv_id", wrong, "--", "x"}).find("--rdzv_id=") == 0, wrong);
  }
}

TEST_CASE("nodes that say nothing share torchrun's run id") {
  CHECK(good({"--nnodes", "2", "--rdzv_endpoint", "h", "--", "x"}).run_id == "none");
}

TEST_CASE("a script runs under python3 -u, PYTHON_EXEC is honoured, --no_python is not touched") {
  const auto argv = [](const std::vector<std::string>& arguments, const Variables& variables = {}) {
    return std::get<ExternalProgram>(good(arguments, variables).program).argv;
  };
  using Words = std::vector<std::string>;
  CHECK(argv({"train.py", "--x"}) == Words{"python3", "-u", "train.py", "--x"});
  CHECK(argv({"train.py"}, {{"PYTHON_EXEC", "/opt/py"}}) == Words{"/opt/py", "-u", "train.py"});
  CHECK(argv({"-m", "pkg.train", "a"}) == Words{"python3", "-u", "-m", "pkg.train", "a"});
  CHECK(argv({"--no_python", "train.py"}) == Words{"train.py"});
  const Words by_path = argv({"--run_path", "--no_python", "/a/script", "b"});
  REQUIRE(by_path.size() == 6);
  CHECK(by_path[2] == "-c");
  CHECK(by_path[4] == "/a/script");
  CHECK(argv({"--", "train.py", "--", "a"}) == Words{"python3", "-u", "train.py", "--", "a"});  // as torchrun
  CHECK(argv({"--no_python", "--", "train.py"}) == Words{"train.py"});
  CHECK(argv({"--", "job.json"}) == Words{"job.json"});
  CHECK(bad({"-m", "--no_python", "x"}).find("exclude") != std::string::npos);
  CHECK(bad({"--standalone"}).find("nothing to run: name a CONFIG.json") == 0);
  CHECK(bad({"--nproc_per_node", "train.py"}) ==
        "nothing to run: --nproc_per_node took train.py for its value; write its own value before that");
  CHECK(bad({"--log_dir", "job.json"}).find("nothing to run: --log_dir took job.json") == 0);
}

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
  CHECK(bad({job.path(), "--nnodes", "2"}).find("come before") != std::string::npos);
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
  const auto choice = choose_device("cuda", "", gpus, 2);
  REQUIRE(choice.ok());
  CHECK(choice.value().why == "cuda, 2 GPUs (NVIDIA H200)");
  CHECK(choose_device("cuda", "", gpus, 3).status().message() ==
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

TEST_CASE("the plan has what every option decided, and is JSON whatever bytes a program's name has") {
  const auto planned = [](const std::vector<std::string>& arguments) {
    return nlohmann::json::parse(plan_json(good(arguments)));
  };
  const auto json = planned({"--nproc_per_node", "2", "--log_dir", "logs", "-r", "0:1", "-t", "0:2",
                             "--signals_to_handle", "USR1", "--log_max_size", "1K", "--", "/bin/\xff"});
  CHECK(json["output"]["workers"].dump() ==
        R"([{"stderr":"both","stdout":"file"},{"stderr":"console","stdout":"console"}])");
  CHECK(json["output"]["log_max_size"] == 1024);
  CHECK(json["signals_to_handle"] == std::vector<std::string>{"SIGUSR1"});
  CHECK(json["program"][0] == "/bin/\xef\xbf\xbd");
  const auto nodes = planned({"--nnodes", "2", "--rdzv_endpoint", "h", "--rdzv_conf", "read_timeout=9", "x"});
  CHECK(nodes["rendezvous"]["read_timeout"] == 9.0);
  CHECK(nodes["rendezvous"]["keep_alive_timeout"] == 15.0);
  CHECK_FALSE(nodes["rendezvous"].contains("heartbeat_timeout"));  // that is an option of its own
  CHECK(planned({"--heartbeat_timeout", "30", "--", "x"})["heartbeat_timeout"] == 30.0);
  CHECK(nodes["output"]["workers"][0]["stdout"] == "console");
}

TEST_CASE("the plan is JSON that a script can read") {
  const Job job;
  const auto json = nlohmann::json::parse(plan_json(good({"--rdzv_id", "r", job.path()})));
  CHECK(json["run_id"] == "r");
  CHECK(json["nproc_per_node"] == 3);
  CHECK(json["rendezvous"]["standalone"] == true);
  CHECK(json["rendezvous"]["host"].is_null());
  CHECK(json["config"]["model"]["type"] == "convnet");
}

TEST_CASE("several nodes have a key: one that is given, or the user's, made when it is first needed") {
  const std::vector<std::string> job{"--nnodes", "2", "--rdzv_endpoint", "here", "--", "x"};
  CHECK(good(job).rendezvous.key == kKey);
  const test::Folder home;
  const Variables user{{"HOME", home.path().string()}};
  std::vector<std::string> dry = job;
  dry.insert(dry.begin(), "--dry_run");
  CHECK(good(dry, user).rendezvous.key.empty());
  CHECK(std::filesystem::is_empty(home.path()));
  const std::string made = good(job, user).rendezvous.key;
  CHECK(made.starts_with("dtk1_"));
  CHECK(good(job, user).rendezvous.key == made);
  CHECK(good(dry, user).rendezvous.key == made);
}

TEST_CASE("a job of one node has no key, and says so to who gives it one on the command line") {
  const Planned planned = plan({"--token_file", "/nonexistent", "--insecure=0", "--", "x"});
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  CHECK(planned.spec.value().rendezvous.key.empty());
  REQUIRE(planned.notices.size() == 2);
  CHECK(planned.notices[0] == "--token_file has no effect on a single node");
  CHECK(plan({"--", "x"}, {{"DTRUN_TOKEN_FILE", "/nonexistent"}}).notices.empty());
}

TEST_CASE("plain text is for who asks for it, and said") {
  const std::vector<std::string> job{"--insecure", "--nnodes", "2", "--rdzv_endpoint", "fd00::1", "--", "x"};
  const Planned planned = plan(job, {{"HOME", "/nonexistent"}});
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  CHECK(planned.spec.value().rendezvous.key.empty());
  REQUIRE(planned.notices.size() == 1);
  CHECK(planned.notices[0] == "plain text: anybody who can connect to [fd00::1]:29400 may join (--insecure)");
  CHECK(bad(job) == "--insecure asks for plain text and DTRUN_TOKEN for a key: give one of them");
}

TEST_CASE("without any key nodes refuse to meet beyond loopback, and say what to do about it") {
  const auto refusal = [](const std::string& host) {
    return bad({"--nnodes", "2", "--rdzv_endpoint", host, "--", "x"}, kExitNoPermission,
               {{"HOME", "/nonexistent"}});
  };
  const std::string here = refusal("here"), elsewhere = refusal("elsewhere");
  for (const std::string& text : {here, elsewhere}) {
    CAPTURE(text);
    CHECK(std::count(text.begin(), text.end(), '\n') == 2);
    CHECK(text.find("/nonexistent/.config/dtrun/key cannot be made") != std::string::npos);
    CHECK(text.find("export DTRUN_TOKEN=") != std::string::npos);
    CHECK(text.find("--token_file") != std::string::npos);
    CHECK(text.find("--insecure") != std::string::npos);
  }
  // Only where the coordinator would be, a key to copy: two nodes would show two.
  CHECK(here.find("DTRUN_TOKEN=dtk1_") != std::string::npos);
  CHECK(here != refusal("here"));
  CHECK(elsewhere.find("dtk1_") == std::string::npos);
  CHECK(elsewhere.find("dtrun on elsewhere prints one") != std::string::npos);

  const Planned loopback =
      plan({"--nnodes", "2", "--rdzv_endpoint", "localhost:4711", "--", "x"}, {{"HOME", ""}});
  REQUIRE(loopback.spec.ok());
  REQUIRE(loopback.notices.size() == 1);
  CHECK(loopback.notices[0] ==
        "plain text: any user of this machine who can connect to localhost:4711 may join (HOME is not set)");
}
