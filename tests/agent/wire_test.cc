// Conversion between the agent's decisions and the messages that it sends and receives.
#include "agent/wire.h"

#include <doctest/doctest.h>
#include <google/protobuf/message.h>

#include <csignal>
#include <set>

#include "proto/core/exit_codes.h"

namespace dtrun::wire_test {

using namespace dtrun::agent;

namespace {

using std::chrono::milliseconds;

JobSpec spec() {
  JobSpec spec;
  spec.run_id = "run";
  spec.nodes = {.min = 2, .max = 4};
  spec.nproc = 3;
  spec.node_rank = 1;
  spec.topology = "pod2.rack7";
  spec.preferred_rank = 0;
  spec.max_restarts = 5;
  spec.crash_loop_limit = 6;
  spec.rendezvous.last_call = milliseconds(1001);
  spec.rendezvous.join_timeout = milliseconds(1002);
  spec.rendezvous.keep_alive_timeout = milliseconds(1003);
  spec.program =
      BuiltinTrainer{.worker_binary = "", .config_json = "{}", .output_dir = "", .lanes = 2, .cuda = true};
  spec.gpus = {{.index = 0, .number = 4, .uuid = "GPU-4", .name = "NVIDIA H200"},
               {.index = 1, .number = 6, .uuid = "GPU-6", .name = "NVIDIA H200"},
               {.index = 2, .number = 7, .uuid = "GPU-7", .name = "NVIDIA H200"}};
  return spec;
}

const Identity kIdentity{.member_id = "id", .host = "b", .address = "10.0.0.2", .master_port = 4711};

Assignment running() {
  Assignment assignment;
  assignment.hosts = {"a", "b"};
  assignment.generation = 7;
  assignment.world_size = 6;
  assignment.restart_count = 2;
  assignment.membership_changes = 8;
  assignment.crash_history.alike = 9;
  assignment.goodput.down = 2.5;
  assignment.group_rank = 1;
  assignment.node_count = 2;
  assignment.node = {.host = "b", .address = "10.0.0.2", .nproc = 3, .first_rank = 3};
  return assignment;
}

// The names of the fields that a message does not say.
std::set<std::string> silent(const google::protobuf::Message& message) {
  std::set<std::string> names;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
    names.insert(message.GetDescriptor()->field(i)->name());
  std::vector<const google::protobuf::FieldDescriptor*> said;
  message.GetReflection()->ListFields(message, &said);
  for (const auto* field : said) names.erase(field->name());
  return names;
}

template <typename E>
std::optional<E> heard(const wire::FromCoordinator& message, const JobSpec& job = spec()) {
  const auto event = to_event(message, job);
  if (!event) return std::nullopt;
  return std::get<E>(*event);
}

wire::FromCoordinator assignment(int group_rank, int node_count, int nproc) {
  wire::FromCoordinator message;
  message.set_generation(7);
  message.mutable_assignment()->set_group_rank(group_rank);
  message.mutable_assignment()->set_node_count(node_count);
  message.mutable_assignment()->mutable_node()->set_nproc(nproc);
  return message;
}

}  // namespace

TEST_CASE("an agent that comes back says all that a coordinator which knows nothing needs") {
  const auto message =
      to_message(action::SendJoin{.running = running(), .age = 1004, .hosting = true}, spec(), kIdentity);
  const wire::Join& join = message.join();
  // A program has a command, and the term is the client's to say.
  CHECK(silent(join) == std::set<std::string>{"command", "term"});
  CHECK(message.generation() == 7);
  CHECK(join.run_id() == "run");
  CHECK(join.member_id() == "id");
  CHECK(join.host() == "b");
  CHECK(join.address() == "10.0.0.2");
  CHECK(join.nproc() == 3);
  CHECK(join.node_rank() == 1);
  CHECK(join.topology() == "pod2.rack7");
  CHECK(join.has_preferred_rank());
  CHECK(join.min_nodes() == 2);
  CHECK(join.max_nodes() == 4);
  CHECK(join.max_restarts() == 5);
  CHECK(join.crash_loop_limit() == 6);
  CHECK(join.last_call_ms() == 1001);
  CHECK(join.join_timeout_ms() == 1002);
  CHECK(join.heartbeat_timeout_ms() == 1003);
  CHECK(join.job() == "{}");
  CHECK(join.master_port() == 4711);
  CHECK(join.group_rank() == 1);
  CHECK(join.node_count() == 2);
  CHECK(join.first_rank() == 3);
  CHECK(join.world_size() == 6);
  CHECK(join.restart_count() == 2);
  CHECK(join.membership_changes() == 8);
  CHECK(join.crash_history().alike() == 9);
  CHECK(join.goodput().down() == 2.5);
  CHECK(std::vector<std::string>(join.seat_hosts().begin(), join.seat_hosts().end()) ==
        std::vector<std::string>{"a", "b"});
  CHECK(join.age_ms() == 1004);
  CHECK(join.hosts());
  CHECK(join.device() == "cuda");
  CHECK(join.gpu() == "NVIDIA H200");
  CHECK(std::vector<int>(join.gpus().begin(), join.gpus().end()) == std::vector<int>{4, 6, 7});
}

TEST_CASE("an agent that was in no generation says so, and that any node rank will do") {
  JobSpec any = spec();
  any.node_rank.reset();
  const auto message = to_message(action::SendJoin{}, any, kIdentity);
  CHECK(message.generation() == 0);
  CHECK(message.join().group_rank() == -1);
  CHECK(message.join().node_rank() == -1);
  CHECK(silent(message.join()) == std::set<std::string>{"node_count", "first_rank", "world_size",
                                                        "restart_count", "membership_changes",
                                                        "crash_history", "goodput", "age_ms", "hosts",
                                                        "command", "workers", "term", "seat_hosts"});
}

TEST_CASE("a program's words are told as far as people read them, and are always text") {
  JobSpec program = spec();
  program.program = ExternalProgram{{"w.py", "\xff", std::string(100000, 'x')}};
  auto& argv = std::get<ExternalProgram>(program.program).argv;
  argv.insert(argv.end(), 1000, "y");
  const auto message = to_message(action::SendJoin{}, program, kIdentity);
  const auto& command = message.join().command();
  REQUIRE(command.size() == 64);
  CHECK(command[0] == "w.py");
  CHECK(command[1] == "?");
  CHECK(command[2].size() == 256);
  CHECK(message.join().job().empty());
}

TEST_CASE("heartbeats, failures and ends carry what was decided") {
  const auto beat =
      to_message(action::SendHeartbeat{.generation = 7, .progress = Progress{.step = 3}, .outlives = true},
                 {11, 0}, {WorkerReport{.step = 3}, {}});
  CHECK(beat.generation() == 7);
  CHECK(beat.heartbeat().pids_size() == 2);
  CHECK(beat.heartbeat().pids(0) == 11);
  CHECK(beat.heartbeat().progress().step() == 3);
  REQUIRE(beat.heartbeat().workers_size() == 2);
  CHECK(beat.heartbeat().workers(0).step() == 3);
  CHECK(beat.heartbeat().outlives());
  CHECK_FALSE(to_message(action::SendHeartbeat{.generation = 7}, {}, {}).heartbeat().has_progress());
  WorkerOutcome outcome;
  outcome.rank = 4;
  const auto failure = to_message(action::SendFailure{.generation = 7, .outcome = outcome});
  CHECK(failure.generation() == 7);
  CHECK(failure.failure().outcome().rank() == 4);
  const auto stopped = to_message(action::SendStopped{.generation = 7, .outcomes = {outcome, outcome}});
  CHECK(stopped.generation() == 7);
  CHECK(stopped.stopped().outcomes_size() == 2);
  CHECK(to_message(action::SendFinished{7}).has_finished());
  CHECK(to_message(action::SendFinished{7}).generation() == 7);
  CHECK(to_message(action::SendLeave{.generation = 7, .signal = SIGINT}).leave().signal() == SIGINT);
  CHECK(to_message(action::SendLeave{.generation = 7, .signal = SIGINT, .soon = true}).leave().soon());
  CHECK(
      to_message(action::SendLeave{.generation = 7, .signal = SIGTERM, .replaced = true}).leave().replaced());
}

TEST_CASE("news of another node are heard as they were said") {
  wire::FromCoordinator message;
  message.mutable_news()->set_kind(wire::News::REFUSED);
  message.mutable_news()->set_host("c");
  message.mutable_news()->set_text("c was refused");
  message.mutable_news()->set_age_ms(7);
  CHECK(heard<event::News>(message) == event::News{event::News::kRefused, "c", "c was refused", 7});
}

TEST_CASE("an assignment that contradicts itself is not taken") {
  CHECK(heard<event::Assigned>(assignment(1, 2, 3))->assignment.generation == 7);
  CHECK_FALSE(heard<event::Assigned>(assignment(2, 2, 3)));
  CHECK_FALSE(heard<event::Assigned>(assignment(-1, 2, 3)));
  CHECK_FALSE(heard<event::Assigned>(assignment(1, 2, 0)));
  CHECK_FALSE(to_event(wire::FromCoordinator(), spec()));
}

TEST_CASE("each reason of a refusal has its exit code, and another job the difference") {
  const auto refused = [](wire::Rejected::Reason reason) {
    wire::FromCoordinator message;
    message.mutable_rejected()->set_reason(reason);
    message.mutable_rejected()->set_message("no");
    message.mutable_rejected()->set_job("theirs");
    JobSpec job = spec();
    job.describe_difference = [](const std::string& theirs) { return "differs from " + theirs; };
    return heard<event::Rejected>(message, job).value();
  };
  CHECK(refused(wire::Rejected::OTHER_RUN).exit_code == kExitUnavailable);
  CHECK(refused(wire::Rejected::NODE_RANK_TAKEN).exit_code == kExitUnavailable);
  CHECK(refused(wire::Rejected::OTHER_SETTINGS).exit_code == kExitUsage);
  CHECK(refused(wire::Rejected::OTHER_SETTINGS).message == "no");
  CHECK(refused(wire::Rejected::OTHER_DEVICE).exit_code == kExitConfig);
  CHECK(refused(wire::Rejected::OTHER_PROTOCOL).exit_code == kExitConfig);
  CHECK(refused(wire::Rejected::OTHER_DEVICE).message == "no");
  CHECK(refused(wire::Rejected::OTHER_JOB).exit_code == kExitConfig);
  CHECK(refused(wire::Rejected::OTHER_JOB).message == "no\n  differs from theirs");
  CHECK_FALSE(refused(wire::Rejected::OTHER_JOB).job_over);
  CHECK(refused(wire::Rejected::JOB_OVER).job_over);
}

TEST_CASE("the coordinator's other words") {
  wire::FromCoordinator message;
  message.set_generation(7);
  message.mutable_stop()->set_reason("because");
  CHECK(heard<event::StopOrder>(message)->generation == 7);
  CHECK(heard<event::StopOrder>(message)->reason == "because");
  message.mutable_job_end()->set_exit_code(3);
  CHECK(heard<event::Ended>(message)->job.exit_code == 3);
  message.mutable_wait_status()->set_joined(2);
  CHECK(heard<event::WaitStatus>(message)->joined == 2);
  message.mutable_join_ack()->set_separate(true);
  CHECK(heard<event::JoinAck>(message)->separate);
}

TEST_CASE("a worker's words") {
  control::Ready waits;
  CHECK_FALSE(to_event(3, waits).step);
  waits.set_step(41);
  waits.set_error("lost rank 1");
  const event::WorkerReady ready = to_event(3, waits);
  CHECK(ready.serial == 3);
  CHECK(ready.step == 41);
  CHECK(ready.error == "lost rank 1");
}

TEST_CASE("what a worker is told") {
  BuiltinTrainer trainer = std::get<BuiltinTrainer>(spec().program);
  const auto on_gpu = job_message(trainer, spec().gpus, 1).job();
  CHECK(on_gpu.config_json() == "{}");
  CHECK(on_gpu.lanes() == 2);
  CHECK(on_gpu.device() == "cuda");
  CHECK(on_gpu.gpu() == 1);
  CHECK(on_gpu.in_memory_checkpoint_fd() == 0);
  CHECK(
      job_message(trainer, spec().gpus, 1, {.in_memory_checkpoint = true}).job().in_memory_checkpoint_fd() ==
      4);
  CHECK(on_gpu.operations_fd() == 0);
  CHECK(job_message(trainer, spec().gpus, 1, {.operations = true}).job().operations_fd() == 5);
  CHECK(on_gpu.data_fd() == 0);
  CHECK(job_message(trainer, spec().gpus, 1, {.data = true}).job().data_fd() == 6);
  trainer.cuda = false;
  CHECK(job_message(trainer, {}, 1).job().device() == "cpu");
  const auto start = start_message(running(), 5, 2).start();
  CHECK(start.address() == "10.0.0.2");
  CHECK(start.rank() == 5);
  CHECK(start.world_size() == 6);
  CHECK(start.local_rank() == 2);
  CHECK(start.generation() == 7);
  const auto stop = stop_message(control::Stop::PAUSE, "because").stop();
  CHECK(stop.kind() == control::Stop::PAUSE);
  CHECK(stop.reason() == "because");
}

}  // namespace dtrun::wire_test
