// The text of `dtrun status` for a run, word for word.
#include "rendezvous/text/status_text.h"

#include <doctest/doctest.h>

#include <sstream>

namespace dtrun::rendezvous::status_text_test {
namespace {

using v1::MemberStatus;
using v1::RunStatus;

// Two nodes of two workers each, at work.
RunStatus running() {
  RunStatus run;
  run.set_run_id("job7");
  run.set_phase(RunStatus::RUNNING);
  run.set_generation(2);
  run.set_generation_age_s(192.7);
  run.set_world_size(4);
  run.set_min_nodes(1);
  run.set_max_nodes(4);
  run.set_restart_count(1);
  run.set_max_restarts(3);
  run.set_membership_changes(1);
  run.set_reason("node-c joined");
  for (int node = 0; node < 2; ++node) {
    MemberStatus* member = run.add_members();
    member->set_state(MemberStatus::RUNNING);
    member->set_host(node == 0 ? "a" : "node-b");
    member->set_address("10.0.0." + std::to_string(node));
    member->set_group_rank(node);
    member->set_first_rank(2 * node);
    member->set_nproc(2);
    member->set_heartbeat_age_s(0.25 + node);
    for (int pid : {100, 101}) member->add_pids(pid + 10 * node);
  }
  return run;
}

v1::WorkerUsage usage(double cpu, double silent) {
  v1::WorkerUsage usage;
  usage.set_cpu(cpu);
  usage.set_cpu_wait(0.25);
  usage.set_resident_bytes(std::int64_t{200} << 20);
  usage.set_output_age(silent);
  return usage;
}

std::string line_with(const std::string& text, const std::string& words) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(words) != std::string::npos) return line;
  return "no line with " + words + " in:\n" + text;
}

}  // namespace

TEST_CASE("a run at work: where it is, why it is in this generation, the counts, and a line for each node") {
  CHECK(status_text(running(), "10.0.0.1:29400") ==
        "run job7 at 10.0.0.1:29400: running, generation 2 for 3 min 12 s\n"
        "  because node-c joined\n"
        "  world size 4, nodes wanted 1 to 4, restarts 1 of 3, membership changes 1\n"
        "  node  host    ranks  state    heartbeat  pids\n"
        "  0     a       0-1    running  0.2 s ago  100 101\n"
        "  1     node-b  2-3    running  1.2 s ago  110 111\n");
}

TEST_CASE("progress is shown as far as there is any") {
  RunStatus run = running();
  auto* progress = run.mutable_progress();
  progress->set_total_steps(400);
  CHECK(line_with(status_text(run, "e"), "step") == "  step 0 of 400, epoch 0.00");
  progress->set_step(1);
  progress->set_loss(2.30258);
  CHECK(line_with(status_text(run, "e"), "step") == "  step 1 of 400, epoch 0.00, loss 2.3026");
  progress->set_step(120);
  progress->set_epoch(0.256);
  progress->set_samples_per_second(9812.4);
  CHECK(line_with(status_text(run, "e"), "step") ==
        "  step 120 of 400, epoch 0.26, loss 2.3026, 9812 samples/s");
  progress->mutable_memory()->set_used(std::uint64_t{61} << 30);
  progress->mutable_memory()->set_peak(std::uint64_t{62} << 30);
  progress->mutable_memory()->set_total(std::uint64_t{140} << 30);
  CHECK(line_with(status_text(run, "e"), "step") ==
        "  step 120 of 400, epoch 0.26, loss 2.3026, 9812 samples/s, GPU memory 61.0 GiB of 140 GiB");
  const auto json = status_json(run, "e")["progress"];
  CHECK(json["gpu_memory_used"] == std::int64_t{61} << 30);
  CHECK(json["gpu_memory_peak"] == std::int64_t{62} << 30);
  CHECK(json["gpu_memory_total"] == std::int64_t{140} << 30);
}

TEST_CASE("which GPUs the workers have is a line for each node, and part of its JSON") {
  RunStatus run = running();
  CHECK(status_text(run, "e").find("GPU") == std::string::npos);
  CHECK_FALSE(status_json(run, "e")["nodes"][0].contains("device"));
  MemberStatus* member = run.mutable_members(1);
  member->set_device("cuda");
  member->set_gpu("NVIDIA H200");
  for (int number : {2, 3}) member->add_gpus(number);
  CHECK(line_with(status_text(run, "e"), "GPU") == "  GPUs of node-b: 2-3 (NVIDIA H200), one per worker");
  const auto json = status_json(run, "e")["nodes"][1];
  CHECK(json["device"] == "cuda");
  CHECK(json["gpu"] == "NVIDIA H200");
  CHECK(json["gpus"].dump() == "[2,3]");
}

TEST_CASE("ages are told in the two largest units") {
  RunStatus run = running();
  const auto told = [&](double seconds) {
    run.set_generation_age_s(seconds);
    const std::string line = line_with(status_text(run, "e"), "run job7");
    return line.substr(line.find("for ") + 4);
  };
  CHECK(told(-1) == "0 s");
  CHECK(told(59.9) == "59 s");
  CHECK(told(60) == "1 min 0 s");
  CHECK(told(3 * 3600 + 125) == "3 h 2 min");
}

TEST_CASE("a run that waits says for how long, one that is over how it ended") {
  RunStatus run = running();
  run.set_phase(RunStatus::GATHERING);
  run.set_restart_in_s(3.96);
  run.set_generation(0);
  CHECK(line_with(status_text(run, "e"), "run job7") == "run job7 at e: waiting for nodes, restart in 4.0 s");
  run.set_phase(RunStatus::OVER);
  run.set_exit_code(137);
  run.set_ended_age_s(75);
  CHECK(line_with(status_text(run, "e"), "run job7") == "run job7 at e: over, exit code 137, 1 min 15 s ago");
  CHECK(status_json(run, "e")["ended_age"] == 75.0);
  run.set_min_nodes(4);
  CHECK(line_with(status_text(run, "e"), "world size").find("nodes wanted 4,") != std::string::npos);
}

TEST_CASE("colour marks a failed end, and nothing that went well") {
  RunStatus run = running();
  const Palette palette(true);
  CHECK(status_text(run, "e", palette) == status_text(run, "e"));
  run.set_phase(RunStatus::OVER);
  CHECK(status_text(run, "e", palette) == status_text(run, "e"));
  run.set_exit_code(137);
  CHECK(line_with(status_text(run, "e", palette), "run job7") ==
        "run job7 at e: \x1b[1;31mover, exit code 137\x1b[0m, 0 s ago");
}

TEST_CASE("as a line JSON has no newline but its last, whatever bytes a name has") {
  RunStatus run = running();
  run.mutable_members(0)->set_host("\xff\n");
  const std::string line = json_line(status_json(run, "e"));
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(nlohmann::json::parse(line)["nodes"][0]["host"] == "\xef\xbf\xbd\n");
}

TEST_CASE("members without a seat, or out of touch, have nothing made up for them") {
  RunStatus run = running();
  run.mutable_members(0)->set_state(MemberStatus::AWAY);
  run.mutable_members(0)->set_heartbeat_age_s(-1);
  CHECK(status_json(run, "e")["nodes"][0]["heartbeat_age"].is_null());
  MemberStatus* member = run.mutable_members(1);
  member->set_state(MemberStatus::WAITING);
  member->set_group_rank(-1);
  member->clear_pids();
  const std::string text = status_text(run, "e");
  CHECK(line_with(text, "out of touch") == "  0     a       0-1    out of touch  -          100 101");
  CHECK(line_with(text, "waiting") == "  -     node-b  -      waiting       1.2 s ago  -");
  member->set_state(static_cast<MemberStatus::State>(99));  // from a newer coordinator
  CHECK(line_with(status_text(run, "e"), "node-b").find("unknown") != std::string::npos);
}

TEST_CASE("a worker that does not run has no pid, a node with one worker has one rank") {
  RunStatus run = running();
  run.mutable_members(0)->set_pids(0, 0);
  run.mutable_members(1)->set_nproc(1);
  run.mutable_members(1)->mutable_pids()->RemoveLast();
  const std::string text = status_text(run, "e");
  CHECK(line_with(text, " a ") == "  0     a       0-1    running  0.2 s ago  - 101");
  CHECK(line_with(text, "node-b") == "  1     node-b  2      running  1.2 s ago  110");
}

TEST_CASE("many pids go on in the next line, under the first, within 80 columns") {
  RunStatus run = running();
  for (int pid = 1000000; pid < 1000014; ++pid) run.mutable_members(0)->add_pids(pid);
  const std::string text = status_text(run, "e");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() < 80, line);
  CHECK(line_with(text, " a ") ==
        "  0     a       0-1    running  0.2 s ago  100 101 1000000 1000001 1000002");
  CHECK(line_with(text, "1000003") ==
        "                                           1000003 1000004 1000005 1000006");
  CHECK(text.find("1000013\n  1     node-b") != std::string::npos);
}

TEST_CASE("a pid that ends in column 79 is in the line, one that ends in column 80 in the next") {
  for (const int last : {1000, 10000}) {
    RunStatus run = running();
    run.mutable_members(0)->clear_pids();
    for (const int pid : {1000000, 1000001, 1000002, 1000003, last}) run.mutable_members(0)->add_pids(pid);
    const std::string line = line_with(status_text(run, "e"), " a ");
    CHECK(line.size() == (last == 1000 ? 79 : 74));
    CHECK(line.ends_with(last == 1000 ? " 1000003 1000" : " 1000003"));
  }
}

TEST_CASE("goodput is told once there was training, with the kinds of loss") {
  RunStatus run = running();
  run.mutable_goodput()->set_loading(2);
  CHECK(status_text(run, "h:1").find("goodput") == std::string::npos);
  run.mutable_goodput()->set_training(6);
  run.mutable_progress()->set_total_steps(100);
  CHECK(line_with(status_text(run, "h:1"), "goodput") == "  goodput 75.0 %: 6.0 s training, 2.0 s loading");
  const auto json = status_json(run, "h:1");
  CHECK(json["goodput"]["ratio"] == 0.75);
  CHECK(json["goodput"]["loading"] == 2);
}

TEST_CASE("as JSON a run has the same facts under stable names") {
  RunStatus run = running();
  run.mutable_members(1)->set_group_rank(-1);
  run.mutable_members(1)->set_state(MemberStatus::AWAY);
  auto json = status_json(run, "h:1");
  CHECK(json["run_id"] == "job7");
  CHECK(json["endpoint"] == "h:1");
  CHECK(json["phase"] == "running");
  CHECK(json["generation"] == 2);
  CHECK(json["world_size"] == 4);
  CHECK(json["restarts"] == 1);
  CHECK(json["max_restarts"] == 3);
  CHECK(json["membership_changes"] == 1);
  CHECK(json["reason"] == "node-c joined");
  CHECK_FALSE(json.contains("exit_code"));
  CHECK_FALSE(json.contains("progress"));
  CHECK_FALSE(json.contains("goodput"));
  REQUIRE(json["nodes"].size() == 2);
  CHECK(json["nodes"][0]["ranks"] == nlohmann::ordered_json({0, 1}));
  CHECK(json["nodes"][0]["pids"] == nlohmann::ordered_json({100, 101}));
  CHECK(json["nodes"][0]["node_rank"] == 0);
  CHECK(json["nodes"][1]["node_rank"] == nullptr);
  CHECK(json["nodes"][1]["ranks"].empty());
  CHECK(json["nodes"][1]["state"] == "away");
}

TEST_CASE("as JSON a loss that is not known yet is null, and only a run that is over has an exit code") {
  RunStatus run = running();
  run.mutable_progress()->set_total_steps(10);
  CHECK(status_json(run, "e")["progress"]["loss"] == nullptr);
  run.mutable_progress()->set_step(3);  // of a checkpoint
  CHECK(status_json(run, "e")["progress"]["loss"] == nullptr);
  CHECK(line_with(status_text(run, "e"), "step") == "  step 3 of 10, epoch 0.00");
  run.mutable_progress()->set_loss(0.5);
  run.set_phase(RunStatus::OVER);
  CHECK(status_json(run, "e")["progress"]["loss"] == 0.5);
  CHECK(status_json(run, "e")["exit_code"] == 0);
}

TEST_CASE("a run that waits says how long yet, and what happened to the nodes that are missing") {
  RunStatus run = running();
  run.set_phase(RunStatus::GATHERING);
  run.set_join_timeout_left_s(588.4);
  v1::News* news = run.add_news();
  news->set_kind(v1::News::REFUSED);
  news->set_host("node1");
  news->set_text("node1 was refused: --max_restarts is 0 there but 1 here");
  news->set_age_ms(72500);
  const std::string text = status_text(run, "a:1");
  CHECK(line_with(text, "waiting") ==
        "run job7 at a:1: waiting for nodes, 9 min 48 s left, generation 2 for 3 min 12 s");
  CHECK(text.ends_with("\n  1 min 12 s ago: node1 was refused: --max_restarts is 0 there but 1 here\n"));
  const auto json = status_json(run, "a:1");
  CHECK(json["join_timeout_left"] == 588.4);
  CHECK(json["news"][0]["kind"] == "refused");
  CHECK(json["news"][0]["host"] == "node1");
  CHECK(json["news"][0]["age"] == 72.5);
  CHECK(status_json(running(), "a:1")["news"].empty());
}

TEST_CASE("the workers of a node have a line, with the least and the most of them") {
  RunStatus run = running();
  *run.mutable_members(1)->add_workers()->mutable_usage() = usage(1.5, 3);
  *run.mutable_members(1)->add_workers()->mutable_usage() = usage(4, 3);
  run.mutable_members(1)->add_workers();
  CHECK(line_with(status_text(run, "e"), "CPU") ==
        "  node-b: CPU 1.5 to 4.0 s, waited for one 0.2 s, memory 200.0 MiB, last output 3.0 s ago");
  const auto workers = status_json(run, "e")["nodes"][1]["workers"];
  CHECK(workers[1]["usage"]["cpu"] == 4);
  CHECK_FALSE(workers[2].contains("usage"));
}

TEST_CASE("the verdict is a sentence, and for programs its parts") {
  RunStatus run = running();
  CHECK_FALSE(status_json(run, "e").contains("verdict"));
  run.mutable_verdict()->set_text("rank 3 on b slows the run");
  run.mutable_verdict()->set_rank(3);
  run.mutable_verdict()->set_cause("data");
  CHECK(line_with(status_text(run, "e"), "slows") == "  rank 3 on b slows the run");
  const auto verdict = status_json(run, "e")["verdict"];
  CHECK(verdict["rank"] == 3);
  CHECK(verdict["cause"] == "data");
}

TEST_CASE("the address of the page is told, and its token by the link alone") {
  RunStatus run = running();
  CHECK(status_text(run, "e").find("page") == std::string::npos);
  CHECK_FALSE(status_json(run, "e").contains("page"));
  run.mutable_page()->set_address("http://127.0.0.1:40123");
  run.mutable_page()->set_host("node-a");
  run.mutable_page()->set_token("5ec2e7");
  CHECK(line_with(status_text(run, "e"), "page") == "  page http://127.0.0.1:40123 on node-a");
  CHECK(status_json(run, "e")["page"]["host"] == "node-a");
  CHECK((status_text(run, "e") + status_json(run, "e").dump()).find("5ec2e7") == std::string::npos);
  CHECK(page_link(run.page(), "a/b c") == "http://127.0.0.1:40123/?run=a%2fb%20c&token=5ec2e7");
}

}  // namespace dtrun::rendezvous::status_text_test
