// Hosts with sshds for scripts/bench: `ssh_lab 8` makes node0 to node7, `ssh_lab 8 jump` makes them behind a
// jump host whose sshd has the usual limits. Prints the words with which a command is run on the login host,
// a line each, then an empty one. For each line that it reads it prints how many processes run on the hosts
// with that in their command line, sshd's left out. The hosts go away at the end of its input.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

#include "tests/e2e/ssh/ssh_hosts.h"

int main(int argc, char** argv) {
  using namespace dtrun::test;
  const bool jump = argc == 3 && std::string(argv[2]) == "jump";
  if (const std::string why = why_no_ssh_hosts(); !why.empty() || argc != (jump ? 3 : 2)) {
    std::cerr << (why.empty() ? "usage: ssh_lab COUNT [jump]" : why) << "\n";
    return 1;
  }
  const int count = std::atoi(argv[1]);
  try {
    SshNetwork network{.hosts = std::vector<SshHost>(static_cast<std::size_t>(count))};
    if (jump) network.jump = SshHost{};
    const SshHosts hosts(std::move(network));
    for (const std::string& word : hosts.at_login({})) std::cout << word << "\n";
    std::cout << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      int running = 0;
      for (int i = 0; i < count; ++i) {
        for (const SshHosts::Running& process : hosts.processes(i)) {
          running += process.command.find(line) != std::string::npos;
        }
      }
      std::cout << running << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
