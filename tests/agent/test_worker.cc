// A worker that misbehaves on request, for the agent's process tests: test_worker MODE [ARGUMENT].
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "proto/base/framed_channel.h"
#include "proto/control.pb.h"
#include "proto/core/contract.h"

namespace {

using namespace dtrun;

[[noreturn]] void sleep_forever() {
  for (;;) pause();
}

void say(const std::string& line) { std::cout << line << std::endl; }

int die_by_signal(int number) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  kill(getpid(), number);
  return 0;  // a signal that does not end a process
}

// A child in the worker's own group.
pid_t fork_child() {
  const pid_t child = fork();
  if (child == 0) sleep_forever();
  return child;
}

// A process in its own session whose parent is gone; holds our standard output open.
pid_t fork_daemon() {
  int ends[2];
  if (pipe(ends) != 0) std::exit(99);
  if (fork() == 0) {
    setsid();
    const pid_t daemon = fork();
    if (daemon == 0) {
      signal(SIGTERM, SIG_IGN);
      sleep_forever();
    }
    if (write(ends[1], &daemon, sizeof daemon) != sizeof daemon) std::exit(99);
    _exit(0);
  }
  pid_t daemon = -1;
  if (read(ends[0], &daemon, sizeof daemon) != sizeof daemon) std::exit(99);
  return daemon;
}

void list_descriptors() {
  DIR* dir = opendir("/proc/self/fd");
  std::string text = "fds";
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(dir)) text += " " + std::string(entry->d_name);
  }
  closedir(dir);
  say(text);
}

void list_signals() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk") || line.starts_with("SigIgn")) say(line);
  }
}

void write_bulk(int megabytes) {
  std::string line(1023, 'x');
  line += '\n';
  for (int i = 0; i < megabytes * 1024; ++i) {
    if (fwrite(line.data(), 1, line.size(), stdout) != line.size()) std::exit(98);
  }
  fflush(stdout);
}

class Control {
 public:
  Control() : fd_(std::atoi(std::getenv(kEnvControlFd))) {}

  void send(const control::FromWorker& message) { send_raw(frame_of(message)); }
  void send_raw(const std::string& bytes) {
    if (write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::exit(97);
  }

  // Exits with 96 at the end of the stream.
  control::FromAgent receive() {
    for (;;) {
      auto message = reader_.next();
      if (!message.ok()) std::exit(95);
      if (message.value()) return *std::move(message).value();
      if (reader_.read_from(fd_) == Portion::kEnd) std::exit(96);
    }
  }

  control::Job hello(unsigned protocol = kControlProtocol) {
    control::FromWorker message;
    message.mutable_hello()->set_protocol(protocol);
    message.mutable_hello()->set_pid(getpid());
    send(message);
    return receive().job();
  }

  control::Start ready(const std::string& error = "") {
    control::FromWorker message;
    message.mutable_ready()->set_error(error);
    send(message);
    return receive().start();
  }

  control::KvReply kv(control::KvRequest::Op op, const std::string& key, const std::string& value) {
    control::FromWorker message;
    message.mutable_kv()->set_id(++last_id_);
    message.mutable_kv()->set_op(op);
    message.mutable_kv()->set_key(key);
    message.mutable_kv()->set_value(value);
    message.mutable_kv()->set_timeout_ms(60000);
    send(message);
    return receive().kv();
  }

 private:
  int fd_;
  unsigned long last_id_ = 0;
  MessageReader<control::FromAgent> reader_;
};

int trainer_like(const std::string& mode) {
  Control control;
  if (mode == "protocol") {
    control.hello(kControlProtocol + 1);
    return 0;
  }
  if (mode == "garbage") {
    control.send_raw("\xff\xff\xff\xff nonsense");
    sleep_forever();
  }
  const control::Job job = control.hello();
  const control::Start start = control.ready();
  const int rank = start.rank();
  control::FromWorker message;
  if (mode == "train") {
    say("config " + job.config_json() + " address " + start.address() + " lanes " +
        std::to_string(job.lanes()));
    const std::string me = std::to_string(rank), other = std::to_string(1 - rank);
    control.kv(control::KvRequest::SET, "from" + me, "value" + me);
    say("got " + control.kv(control::KvRequest::GET, "from" + other, "").value());
    message.mutable_progress()->set_step(10);
    message.mutable_progress()->set_total_steps(20);
    control.send(message);
    if (rank == 0) {
      training::Completion* done = message.mutable_completion();
      done->set_step(2345);
      done->set_loss(0.3021);
      done->set_accuracy(0.891);
      done->set_model_path("runs/x/model.safetensors");
      control.send(message);
    }
    return 0;
  }
  if (mode == "resume") {  // from step 100 twice; dies at step 120, and again before it is there
    const int restart = std::atoi(std::getenv("DTRUN_RESTART_COUNT"));
    const int first = restart == 0 ? 0 : 100, last = restart == 0 ? 120 : 115;
    for (int step = first; step <= last; step += 5) {
      message.mutable_progress()->set_first_step(first);
      message.mutable_progress()->set_total_steps(200);
      message.mutable_progress()->set_step(step);
      control.send(message);
    }
    if (restart < 2) return 1;
    training::Completion* done = message.mutable_completion();
    done->set_step(200);
    done->set_first_step(100);
    done->set_training_seconds(4);
    done->set_samples_per_second(3200);
    done->set_math(0.5);
    done->set_wait_gradients(0.25);
    done->set_wait_data(0.15);
    done->set_other(0.1);
    control.send(message);
    return 0;
  }
  if (mode == "broken") {  // rank 0 is the victim; rank 1 lives on in silence
    if (rank == 1 && control.receive().stop().kind() != control::Stop::PAUSE) return 1;
    control.ready(rank == 0 ? "peer 1 is silent" : "");
    return 1;
  }
  if (mode == "early") {  // rank 1 uses the store when rank 0 and all of its node's workers are long gone
    if (rank == 0) {
      control.kv(control::KvRequest::SET, "key", "left behind");
      control.kv(control::KvRequest::SET, "pid", std::to_string(getpid()));
      say("rank 0 ends");
      return 0;
    }
    const pid_t first = std::stoi(control.kv(control::KvRequest::GET, "pid", "").value());
    while (kill(first, 0) == 0) usleep(10000);
    usleep(500000);
    say("got " + control.kv(control::KvRequest::GET, "key", "").value());
    return 0;
  }
  if (mode == "hang" || mode == "slow") {  // reports all the time; "slow" really is at work
    for (unsigned i = 0; i < 30 || mode == "hang"; ++i) {
      message.mutable_progress();
      message.set_pulse(mode == "slow" ? i + 1 : 1);
      control.send(message);
      usleep(100000);
    }
    return 0;
  }
  if (mode == "hang_together") {  // rank 0 waits for nobody, rank 1 for it
    if (std::atoi(std::getenv("DTRUN_RESTART_COUNT")) > 0) return 0;
    // They meet before the only sign that each gives: one that starts late, on a busy machine, is not the
    // last to give it.
    control.kv(control::KvRequest::SET, "here" + std::to_string(rank), "yes");
    control.kv(control::KvRequest::GET, "here" + std::to_string(1 - rank), "");
    message.mutable_progress();
    message.set_pulse(1);
    control.send(message);
    if (rank == 0) sleep_forever();
    if (control.receive().stop().kind() != control::Stop::PAUSE) return 1;
    control.ready();
    say("rank 1 goes on");
    return 0;
  }
  if (mode == "fault") {
    if (rank != 0) return control.receive().stop().kind() == control::Stop::PAUSE ? 75 : 1;
    message.mutable_fault()->set_exit_code(66);
    message.mutable_fault()->set_message("train-images: file ends early");
    control.send(message);
    return 66;
  }
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  // The built-in trainer has no arguments: its mode comes by the environment.
  if (argc < 2) return trainer_like(std::getenv("TEST_WORKER_MODE"));
  const std::string mode = argv[1];
  const std::string argument = argc > 2 ? argv[2] : "";
  if (mode == "signal") return die_by_signal(std::atoi(argument.c_str()));
  if (mode == "descriptors") {
    list_descriptors();
    list_signals();
    return 0;
  }
  if (mode == "bulk") {
    write_bulk(std::atoi(argument.c_str()));
    return 0;
  }
  if (mode == "family") {
    say("child " + std::to_string(fork_child()) + " daemon " + std::to_string(fork_daemon()) + " ready");
    if (argument == "exit") return 0;
    sleep_forever();
  }
  if (mode == "stubborn") {
    for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
    say("child " + std::to_string(fork_child()) + " daemon -1 ready");
    sleep_forever();
  }
  if (mode == "eat") {  // more memory than there is
    if (std::atoi(std::getenv("RANK")) != 1) sleep_forever();
    for (;;) std::memset(std::malloc(1 << 20), 1, 1 << 20);
  }
  if (mode == "silent") {
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    usleep(50000);
    return 7;
  }
  return 64;
}
