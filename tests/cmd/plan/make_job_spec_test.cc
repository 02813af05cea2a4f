#include "cmd/plan/make_job_spec.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "cmd/plan/plan_json.h"
#include "tests/cmd/plan/planned.h"

namespace dtrun::make_job_spec_test {

using namespace dtrun::cmd;
using std::chrono::milliseconds;

TEST_CASE("without options a program runs once, standalone") {
  const JobSpec spec = good({"--", "/bin/true"});
  CHECK(alone(spec));
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
  CHECK_FALSE(good({"--", "x"}).notice_after.has_value());
  CHECK(good({"--notice_after", "5", "--", "x"}).notice_after == milliseconds(5000));
  CHECK(good({"--notice_after", "0", "--", "x"}).notice_after == milliseconds(0));
  CHECK(bad({"--notice_after", "0.5", "--", "x"}).find("at least 1 second") != std::string::npos);
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

  const auto in_venv = [](const Variables& variables) {
    const Planned planned = plan({"train.py"}, variables, 8, 0, true, 0, "/venv/bin/python3");
    REQUIRE(planned.spec.ok());
    return std::get<ExternalProgram>(planned.spec.value().program).argv;
  };
  CHECK(in_venv({}) == Words{"/venv/bin/python3", "-u", "train.py"});
  CHECK(in_venv({{"PYTHON_EXEC", "/opt/py"}}) == Words{"/opt/py", "-u", "train.py"});
  CHECK(bad({"--standalone"}).find("nothing to run: name a CONFIG.json") == 0);
  CHECK(bad({"--nproc_per_node", "train.py"}) ==
        "nothing to run: --nproc_per_node took train.py for its value; write its own value before that");
  CHECK(bad({"--log_dir", "job.json"}).find("nothing to run: --log_dir took job.json") == 0);
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

TEST_CASE("the page has a free port, a given one or none, and beyond this host a closed coordinator") {
  const auto page = [](const std::vector<std::string>& arguments) { return good(arguments).rendezvous.page; };
  CHECK(page({"--", "x"}).port == 0);
  CHECK(page({"--http_port", "auto", "--", "x"}).port == 0);
  CHECK(page({"--http_port", "8080", "--", "x"}).port == 8080);
  CHECK(page({"--http_port", "off", "--", "x"}).port == std::nullopt);
  for (const char* port : {"0", "65536", "on", ""})
    CHECK(bad({"--http_port", port, "--", "x"}).ends_with("expected a port from 1 to 65535, auto or off"));
  CHECK(page({"--http_bind", "10.0.0.1", "--", "x"}).address ==
        "10.0.0.1");  // its coordinator is a Unix socket
  CHECK(bad({"--http_bind", "node1", "--", "x"})
            .ends_with("expected an address of this host in numbers, as 10.0.0.1"));
  const std::vector<std::string> open{"--nnodes", "2", "--rdzv_endpoint", "h", "--insecure", "--http_bind"};
  const auto with = [&](const char* address) {
    std::vector<std::string> words = open;
    words.insert(words.end(), {address, "x"});
    return words;
  };
  const Variables no_key{{"HOME", "/nonexistent"}};
  CHECK(bad(with("10.0.0.1"), kExitUsage, no_key).find("elsewhere: ssh -L PORT:127.0.0.1:PORT HOST") !=
        std::string::npos);
  CHECK(good(with("127.0.0.2"), no_key).rendezvous.page.address == "127.0.0.2");
  const auto json = nlohmann::json::parse(plan_json(good({"--http_port", "8080", "--", "x"})));
  CHECK(json["rendezvous"]["http_port"] == 8080);
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

}  // namespace dtrun::make_job_spec_test
