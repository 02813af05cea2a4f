// --include and --exclude; the cases of DeepSpeed's own test (tests/unit/launcher/test_run.py) among them.
#include "cmd/hosts/host_filter.h"

#include <doctest/doctest.h>

#include <random>

namespace dtrun::cmd::host_filter_test {
namespace {

std::vector<Host> workers() {
  return {{.destination = "worker-0", .slots = 4}, {.destination = "worker-1", .slots = 4}};
}

// "worker-0=2[0,2]": name, slots, GPUs; or the message of a refusal.
std::string filtered(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude) {
  const auto left = filter_hosts(hosts, include, exclude);
  if (!left.ok()) {
    CHECK(left.status().exit_code() == kExitUsage);
    return left.status().message();
  }
  std::string result;
  for (const auto& host : left.value()) {
    result += (result.empty() ? "" : " ") + host.destination + "=" + std::to_string(host.slots);
    for (std::size_t i = 0; i < host.gpus.size(); ++i) {
      result += (i == 0 ? "[" : ",") + std::to_string(host.gpus[i]);
    }
    if (!host.gpus.empty()) result += "]";
  }
  return result;
}

}  // namespace

TEST_CASE("without filters nothing changes") { CHECK(filter_hosts(workers(), "", "").value() == workers()); }

TEST_CASE("include takes hosts, or GPUs of them, in the order of the list of hosts") {
  CHECK(filtered(workers(), "worker-0", "") == "worker-0=4");
  CHECK(filtered(workers(), "worker-1@worker-0:0,2", "") == "worker-0=2[0,2] worker-1=4");
  CHECK(filtered(workers(), "worker-1:3,1,1", "") == "worker-1=2[1,3]");
  CHECK(filtered(workers(), "worker-1:1@worker-1:0", "") == "worker-1=2[0,1]");
}

TEST_CASE("exclude leaves the others, and drops a host of which none is left") {
  CHECK(filtered(workers(), "", "worker-1:0") == "worker-0=4 worker-1=3[1,2,3]");
  CHECK(filtered(workers(), "", "worker-0") == "worker-1=4");
  CHECK(filtered(workers(), "", "worker-0:0,1,2,3@worker-1:3") == "worker-1=3[0,1,2]");
  CHECK(filtered(workers(), "", "worker-0@worker-1") == "--exclude: no host is left");
  CHECK(filtered(workers(), "", "worker-0:0,1,2,3@worker-1") == "--exclude: no host is left");
}

TEST_CASE("a host whose slots are not said can be included by GPU, not excluded") {
  const std::vector<Host> hosts = {{.destination = "a"}, {.destination = "ada@b"}};
  CHECK(filtered(hosts, "b:5,7", "") == "ada@b=2[5,7]");
  CHECK(filtered(hosts, "", "b") == "a=0");
  CHECK(filtered(hosts, "", "a:0") ==
        "--exclude: a has no slots that GPUs could be taken from: say slots=N in the list of hosts, or "
        "--include the "
        "GPUs that are to be used");
}

TEST_CASE("an IPv6 address is in brackets") {
  const std::vector<Host> hosts = {{.destination = "ada@fd77::10", .slots = 2}, {.destination = "::1"}};
  CHECK(filtered(hosts, "[fd77::10]:1@[::1]", "") == "ada@fd77::10=1[1] ::1=0");
}

TEST_CASE("what does not exist is named, with a way out") {
  CHECK(filtered(workers(), "worker-0", "worker-1") == "--include and --exclude exclude each other");
  CHECK(filtered(workers(), "wroker-1", "") ==
        "--include: no host 'wroker-1' among the job's (did you mean worker-1?)");
  CHECK(filtered(workers(), "", "ada@worker-0") ==
        "--exclude: no host 'ada' among the job's: hosts stand without users, with '@' between them");
  CHECK(filtered(workers(), "worker-1:3,4", "") ==
        "--include: worker-1 has no GPU 4: its 4 slots are 0 to 3");
  CHECK(filtered(workers(), "", "worker-1:4") == "--exclude: worker-1 has no GPU 4: its 4 slots are 0 to 3");
  CHECK(filtered(workers(), "worker-1@worker-1:0", "") ==
        "--include: 'worker-1' is named as a whole and by GPUs");
  for (const char* gpus : {"", "x", "0,", ",0", "0-2", "-1", "16384", "1 2", "99999999999"}) {
    CAPTURE(gpus);
    CHECK(filtered(workers(), "worker-1:" + std::string(gpus), "")
              .starts_with("--include: expected indices of GPUs between commas after ':'"));
  }
  for (const char* text : {"@", "worker-0@", "@worker-0", ":0", "[", "[]:0"}) {
    CAPTURE(text);
    CHECK_FALSE(filter_hosts(workers(), text, "").ok());
  }
}

TEST_CASE("including some GPUs is the same as excluding the others") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<Host> hosts;
    std::string include, exclude;
    for (unsigned i = 0; i < 5; ++i) {
      const auto name = "h" + std::to_string(i);
      const int slots = 2 + static_cast<int>(random() % 8);
      hosts.push_back({.destination = name, .slots = slots});
      std::string in, out;
      for (int gpu = 0; gpu < slots; ++gpu) {
        // Each host has a GPU that is in and one that is out, so that no host is whole or gone.
        const bool is_in = gpu == 0 || (gpu != 1 && random() % 2 == 0);
        auto& list = is_in ? in : out;
        list += (list.empty() ? "" : ",") + std::to_string(gpu);
      }
      include += (i == 0 ? "" : "@") + name + ":" + in;
      exclude += (i == 0 ? "" : "@") + name + ":" + out;
    }
    const auto some = filter_hosts(hosts, include, ""), others = filter_hosts(hosts, "", exclude);
    REQUIRE(some.ok());
    REQUIRE(others.ok());
    CHECK(some.value() == others.value());
  }
}

}  // namespace dtrun::cmd::host_filter_test
