#include "tests/e2e/program.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace dtrun::test {
namespace {

std::thread read_all(int fd, std::string& into, std::mutex& mutex) {
  return std::thread([fd, &into, &mutex] {
    char chunk[4096];
    for (ssize_t n; (n = read(fd, chunk, sizeof chunk)) > 0;) {
      const std::lock_guard lock(mutex);
      into.append(chunk, static_cast<std::size_t>(n));
    }
    close(fd);
  });
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& string : strings) out.push_back(string.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const std::vector<std::string>& extra_environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  std::vector<std::string> words = argv, environment = extra_environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  std::vector<char*> argument_pointers = pointers(words), environment_pointers = pointers(environment);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    execvpe(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_reader_ = read_all(out[0], ended_.out, mutex_);
  err_reader_ = read_all(err[0], ended_.err, mutex_);
}

Program::~Program() { wait(Seconds(0)); }

void Program::signal(int number) const { kill(pid_, number); }

std::string Program::err_so_far() const {
  const std::lock_guard lock(mutex_);
  return ended_.err;
}

Ended Program::wait(Seconds limit) {
  if (reaped_) return ended_;
  siginfo_t info{};
  const bool in_time = eventually(
      [&] {
        return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
               info.si_pid == pid_;
      },
      limit.count());
  if (!in_time) kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  out_reader_.join();
  err_reader_.join();
  if (in_time) ended_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_;
}

Ended run(const std::vector<std::string>& argv, const std::vector<std::string>& extra_environment) {
  return Program(argv, extra_environment).wait();
}

std::vector<pid_t> children_of(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::string stat = read_file(entry.path() / "stat");
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    char state = 0;
    pid_t its_parent = 0;
    std::istringstream(stat.substr(close + 1)) >> state >> its_parent;
    if (its_parent == parent && state != 'Z' && stat.substr(open + 1, close - open - 1) == name) {
      found.push_back(std::stoi(entry.path().filename()));
    }
  }
  return found;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "dtrun_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  (void)bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace dtrun::test
