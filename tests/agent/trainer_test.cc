// The control protocol with workers of the built-in trainer's kind, and jobs of two agents: real processes.
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/report_file.h"
#include "tests/agent/agent_process.h"

namespace dtrun::agent::test::trainer_test {

namespace {

std::vector<std::string> mode(const std::string& name) { return {"TEST_WORKER_MODE=" + name}; }

}  // namespace

TEST_CASE("workers get their config, meet over the store, and the last line says what was reached") {
  Process job(trainer_agent({"--nproc", "2"}, "{\"a\":1}"), mode("train"));
  CHECK(job.wait() == 0);
  CHECK(job.out().find("[default:0] config {\"a\":1} address 127.0.0.1 lanes 3\n") != std::string::npos);
  CHECK(job.out().find("[default:0] got value1\n") != std::string::npos);
  CHECK(job.out().find("[default:1] got value0\n") != std::string::npos);
  CHECK(
      job.err().find(
          "dtrun: done: 2345 steps, test accuracy 89.1 %, loss 0.302, model in runs/x/model.safetensors\n") !=
      std::string::npos);
}

TEST_CASE("the summary has the completed worker's times, and counts the steps that restarts did again") {
  Process job(trainer_agent({"--max_restarts", "2"}), mode("resume"));
  CHECK(job.wait() == 0);
  const std::string end = job.err().substr(std::min(job.err().find("dtrun: done:"), job.err().size()));
  CHECK_MESSAGE(end.starts_with("dtrun: done: 200 steps, loss 0.000\n  "), job.err());
  CHECK(end.find(
            " s in all, 4.0 s of it training since the last interruption: 3,200 samples/s, 40.0 ms a step\n"
            "  of a step's time: 50 % math, 25 % waiting for gradients, 15 % waiting for data, "
            "10 % other\n  goodput") != std::string::npos);
  CHECK(end.ends_with("\n  2 restarts; at least 35 steps done again\n"));
}

TEST_CASE("a worker's own words about its failure are the report's, and bad input is not tried again") {
  Process job(trainer_agent({"--nproc", "2", "--max_restarts", "3"}), mode("fault"));
  CHECK(job.wait() == 66);
  CHECK(job.err().find("train-images: file ends early") != std::string::npos);
  CHECK(job.err().find("restart 1 of 3") == std::string::npos);
}

TEST_CASE("the output directory keeps the events and the report, with a log directory and without") {
  const Folder output, logs;
  const std::string folder = (output.path() / "run").string();
  Process failed(trainer_agent({"--output_dir", folder}), mode("fault"));
  CHECK(failed.wait() == 66);
  CHECK(failed.err().find("  all of it: " + folder + "/report.json\n") != std::string::npos);
  const auto report = dtrun::agent::ended_job_of(read_if_there(output.path() / "run/report.json"));
  REQUIRE(report);
  CHECK(report->end.exit_code == 66);
  CHECK(report->world_size == 1);
  CHECK(report->generation == 1);
  Process again(trainer_agent({"--output_dir", folder, "--log_dir", logs.path().string()}), mode("early"));
  CHECK(again.wait() == 0);
  CHECK(read_if_there(output.path() / "run/report.json") == read_if_there(logs.path() / "test/report.json"));
  const std::string events = read_if_there(logs.path() / "test/events.jsonl");
  CHECK(events.find("\"output_dir\":\"" + folder + "\"") != std::string::npos);
  CHECK(
      read_if_there(output.path() / "run/events.jsonl").ends_with(events));  // behind those of the run before
}

TEST_CASE("signals for which the built-in trainer has no use do not kill it") {
  Folder logs;
  Process job(trainer_agent({"--log_dir", logs.path().string()}), mode("slow"));
  REQUIRE(eventually([&] {
    return read_if_there(logs.path() / "test/events.jsonl").find("worker_started") != std::string::npos;
  }));
  job.signal(SIGUSR1);
  job.signal(SIGUSR2);
  CHECK(job.wait() == 0);
}

TEST_CASE("a collective that broke without a visible cause ends the job after a while") {
  Process job(trainer_agent({"--nproc", "2"}), mode("broken"));
  CHECK(job.wait() == 76);
  CHECK(job.err().find("peer 1 is silent") != std::string::npos);
}

TEST_CASE("a worker of another version or without manners is ended with a clear word") {
  Process other(trainer_agent({}), mode("protocol"));
  CHECK(other.wait() == 70);
  CHECK(other.err().find("install both from one build") != std::string::npos);
  Process garbage(trainer_agent({}), mode("garbage"));
  CHECK(garbage.wait() == 70);
  CHECK(garbage.err().find("control protocol: a frame of") != std::string::npos);
}

TEST_CASE("two agents on one host make one job, and the hosting one ends last") {
  const std::string port = free_port();
  const std::string script = "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR";
  Process first(agent({"--nodes", "2", "--port", port, "--", "/bin/sh", "-c", script}));
  REQUIRE(first.wait_for_err("joined 1 of 2 nodes at 127.0.0.1:" + port));
  Process second(agent({"--nodes", "2", "--nproc", "2", "--port", port, "--", "/bin/sh", "-c", script}));
  CHECK(second.wait() == 0);
  CHECK(first.wait() == 0);
  CHECK(first.out() == "[default:0] rank 0 of 3 at 127.0.0.1\n");
  CHECK(second.out().find("[default:2] rank 2 of 3 at 127.0.0.1\n") != std::string::npos);
}

TEST_CASE("a failure on one node stops the other, and both report the same with its exit code") {
  const std::string port = free_port();
  const std::string script = "[ $RANK = 1 ] && exit 8; exec sleep 1000";
  const Folder logs[2];
  const auto node = [&](int i) {
    return agent({"--nodes", "2", "--port", port, "--log_dir", logs[i].path().string(), "--", "/bin/sh", "-c",
                  script});
  };
  Process first(node(0)), second(node(1));
  CHECK(first.wait() == 8);
  CHECK(second.wait() == 8);
  CHECK(first.err().find("rank 1 on ") != std::string::npos);
  CHECK(second.err().find("rank 1 on ") != std::string::npos);
  const auto a = nlohmann::json::parse(read_if_there(logs[0].path() / "test/report.json"));
  const auto b = nlohmann::json::parse(read_if_there(logs[1].path() / "test/report.json"));
  CHECK(a["first_failure"]["rank"] == 1);
  CHECK(a["first_failure"] == b["first_failure"]);
  CHECK(a["followers"] == b["followers"]);
  CHECK(a["followers"].size() == 1);
}

TEST_CASE("who ends early waits for nobody, and the store stays for the others") {
  const std::string port = free_port();
  Process first(trainer_agent({"--nodes", "2", "--port", port}), mode("early"));
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  Process second(trainer_agent({"--nodes", "2", "--port", port}), mode("early"));
  REQUIRE(first.wait_for_out("rank 0 ends"));
  CHECK(second.wait() == 0);
  CHECK(first.wait() == 0);
  CHECK(second.out().find("got left behind") != std::string::npos);
}

TEST_CASE("another config under the same run id is refused with the difference") {
  const std::string port = free_port();
  Process first(trainer_agent({"--nodes", "2", "--port", port}, "{\"seed\":1}"), mode("train"));
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  Process second(trainer_agent({"--nodes", "2", "--port", port}, "{\"seed\":2}"), mode("train"));
  CHECK(second.wait() == 78);
  CHECK(second.err().find("{\"seed\":2} here, {\"seed\":1} there") != std::string::npos);
  first.signal(SIGTERM);
  CHECK(first.wait() == 143);
}

TEST_CASE("a node with another device than the first one's is refused") {
  const std::string port = free_port();
  Process first(trainer_agent({"--nodes", "2", "--port", port, "--gpu", "NVIDIA H200"}), mode("train"));
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  Process second(trainer_agent({"--nodes", "2", "--port", port}), mode("train"));
  CHECK(second.wait() == 78);
  const std::string told = second.err();
  CHECK_MESSAGE(told.find(" would compute on cpu, but ") != std::string::npos, told);
  CHECK_MESSAGE(
      told.find(" first, computes on cuda (NVIDIA H200): other devices give other bits") != std::string::npos,
      told);
  CHECK(first.wait_for_err("it would compute on cpu, and this run computes on cuda (NVIDIA H200)"));
  first.signal(SIGTERM);
  CHECK(first.wait() == 143);
}

TEST_CASE("too few nodes within the join timeout is exit code 69") {
  Process job(agent({"--nodes", "2", "--join_ms", soon_ms(3000), "--port", free_port(), "--", "/bin/true"}));
  CHECK(job.wait() == 69);
  CHECK(job.err().find("1 of 2") != std::string::npos);
}

TEST_CASE("the loss of a node restarts the other's workers with the nodes that are left") {
  const std::string port = free_port();
  const Folder folder;
  const std::string met = folder / "met";
  // The first may begin alone, where the second comes late.
  const std::string script =
      "echo world $WORLD_SIZE; [ $WORLD_SIZE = 1 ] && [ -e " + met + " ] || exec sleep 1000";
  const std::vector<std::string> options = {"--nodes", "2", "--min_nodes", "1", "--port", port};
  std::vector<std::string> argv = options;
  argv.insert(argv.end(), {"--", "/bin/sh", "-c", script});
  Process first(agent(argv));
  REQUIRE(first.wait_for_err("joined 1 of 2"));
  Process second(agent(argv));
  REQUIRE(first.wait_for_out("world 2"));
  REQUIRE(second.wait_for_out("world 2"));
  dtrun::test::write_text(met, "");
  second.signal(SIGKILL);
  CHECK(first.wait() == 0);
  CHECK(first.out().find("world 1") != std::string::npos);
  CHECK(first.err().find("going on with 1 worker on 1 node") != std::string::npos);
}

TEST_CASE(
    "the agent that hosts the coordinator does so also if its own name becomes known only after its start") {
  Process job(agent({"--join_ms", "20000", "--host", "node0.example", "--port", free_port(), "--",
                     "/bin/echo", "ran"}),
              dtrun::test::preloaded(binary("late_names.so")));
  CHECK(job.wait() == 0);
  CHECK(job.out() == "[default:0] ran\n");
}

}  // namespace dtrun::agent::test::trainer_test
