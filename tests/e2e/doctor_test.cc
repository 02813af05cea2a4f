// `dtrun doctor` on eight hosts that are network namespaces: it names what was planted, with the node and
// what to do, and nothing where nothing was.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/hosts.h"
#include "tests/e2e/training.h"
#include "tests/support/skip.h"
#include "tests/support/unique.h"

namespace dtrun::doctor_test {

using namespace dtrun::test;

namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

struct Trouble {
  std::string check, text, remedy;
  std::set<std::string> nodes;
};

struct Told {
  int exit_code = -1;
  std::vector<Trouble> troubles = {};
  std::string output = {};  // for messages
  double seconds = 0;

  const Trouble* about(const std::string& check) const {
    const auto found = std::ranges::find(troubles, check, &Trouble::check);
    return found == troubles.end() ? nullptr : &*found;
  }
};

class Cluster {
 public:
  explicit Cluster(int count) : hosts(count), count_(count), words_(count) {
    std::string names = "127.0.0.1 localhost\n";
    for (int i = 0; i < count; ++i) names += Hosts::address(i) + " " + Hosts::name(i) + "\n";
    for (int i = 0; i < count; ++i) set_names(i, names);
  }

  // What the host's name service is.
  void set_names(int host, const std::string& names) const {
    std::ofstream(hosts.seen_from_here(host, "hosts")) << names;
    must(host, {"sh", "-c",
                "umount /etc/hosts 2>/dev/null; mount --bind " + (hosts.directory() / "hosts").string() +
                    " /etc/hosts"});
  }
  void must(int host, const Words& argv) const {
    const Ended ended = run(hosts.on(host, argv));
    REQUIRE_MESSAGE(ended.exit_code == 0, ended.err);
  }
  // In front of the host's doctor.
  void start_by(int host, const Words& words) { words_[static_cast<std::size_t>(host)] = words; }
  void leave_out(int host) { left_out_ = host; }

  std::unique_ptr<Process> start(int host, const Words& more) const {
    const Words doctor{
        kDtrun, "doctor", "--json", "--nnodes", std::to_string(count_), "--rdzv_endpoint", Hosts::address(0)};
    return std::make_unique<Process>(
        hosts.on(host, joined(words_[static_cast<std::size_t>(host)], joined(doctor, more))));
  }

  // The report, the same on all hosts.
  Told doctor(const Words& more = {}) const {
    soon(std::chrono::seconds(1));  // so long each node waits for the others' names and addresses
    const Stopwatch watch;
    std::vector<std::unique_ptr<Process>> all;
    for (int host = 0; host < count_; ++host)
      if (host != left_out_) all.push_back(start(host, more));
    std::vector<Ended> ends;
    for (const auto& one : all) ends.push_back(one->end());
    Told told{.exit_code = ends.front().exit_code, .output = ends.front().out + ends.front().err};
    told.seconds = std::chrono::duration<double>(watch.wall()).count();
    for (const Ended& one : ends) {
      CHECK_MESSAGE(one.exit_code == told.exit_code, one.err);
      CHECK_MESSAGE(one.out == ends.front().out, one.out);
    }
    const Json report = Json::parse(ends.front().out, nullptr, false);
    REQUIRE_MESSAGE(!report.is_discarded(), told.output);
    for (const Json& section : report.at("sections"))
      for (const Json& finding : section.at("findings"))
        if (finding.at("grade") != "passed")
          told.troubles.push_back({finding.at("check"), finding.at("text"), finding.at("remedy"),
                                   finding.at("nodes").get<std::set<std::string>>()});
    return told;
  }

  const Hosts hosts;

 private:
  const int count_;
  std::vector<Words> words_;
  int left_out_ = -1;
};

struct Expected {
  std::string check, node, text;  // a part of what is told
};

// These are told and nothing else, each with its node and what to do.
void expect(const Told& told, const std::vector<Expected>& all) {
  CHECK_MESSAGE(told.troubles.size() == all.size(), told.output);
  for (const Expected& one : all) {
    const Trouble* const trouble = told.about(one.check);
    REQUIRE_MESSAGE(trouble != nullptr, one.check << " in " << told.output);
    CHECK_MESSAGE(trouble->text.find(one.text) != std::string::npos, told.output);
    CHECK_MESSAGE((trouble->nodes == std::set<std::string>{one.node} || trouble->text.starts_with(one.node)),
                  told.output);
    CHECK(!trouble->remedy.empty());
  }
}

// A job whose output goes into the folder of its own that each host has.
Words config(const Cluster& cluster) {
  const std::filesystem::path file = cluster.hosts.directory().parent_path() / "job.json";
  const Json job{{"output_dir", (cluster.hosts.directory() / "out").string()},
                 {"model", {{"type", "convnet"}}},
                 {"data", {{"type", "synthetic"}, {"samples", 2000}}},
                 {"train", {{"global_batch_size", 16}}}};
  write_text(file, job.dump());
  return {file.string()};
}

}  // namespace

TEST_CASE("eight nodes in order hear nothing, within seconds") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Cluster cluster(8);
  const Told told = cluster.doctor();
  CHECK_MESSAGE(told.troubles.empty(), told.output);
  CHECK(told.exit_code == 0);
  MESSAGE("eight nodes: " << told.seconds << " s");
}

TEST_CASE("each fault of the network between eight nodes is named, with the node or the path") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Cluster cluster(8);
  std::string names = "127.0.0.1 localhost\n";
  for (int i = 0; i < 8; ++i)
    names += (i == 3 ? "10.77.0.99" : Hosts::address(i)) + " " + Hosts::name(i) + "\n";
  cluster.set_names(5, names);
  cluster.must(1, {"nft",
                   "add table inet t; add chain inet t in { type filter hook input priority 0; }; "
                   "add rule inet t in ip saddr " +
                       Hosts::address(3) + " tcp flags & (syn | ack) == syn drop"});
  // No packet says so: a black hole, as of a switch whose MTU is smaller. The way to the coordinator's host
  // is another one: else the node would not come at all.
  const std::string coordinator = Hosts::address(0);
  cluster.must(6, {"nft",
                   "add table inet t; add chain inet t in { type filter hook input priority 0; }; "
                   "add chain inet t out { type filter hook output priority 0; }; "
                   "add rule inet t in ip saddr != " +
                       coordinator +
                       " meta length > 1400 drop; "
                       "add rule inet t out ip daddr != " +
                       coordinator + " meta length > 1400 drop"});
  cluster.must(2, {"tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb",
                   "latency", "50ms"});
  const Told told = cluster.doctor();
  expect(told,
         {{"names", "node3", "node3 means 10.77.0.99, on node5"},
          {"connections", "node3 -> node1: ", "no answer, a filter or another network; the other way works"},
          {"large messages", "node6: ", "64 kB never arrive"},
          {"bandwidth", "node2: ", " Mbit/s, the others "}});
  CHECK(told.about("connections")->remedy.find("firewall on node1") != std::string::npos);
  CHECK(told.exit_code == 1);
}

TEST_SUITE_BEGIN("netem");
TEST_CASE("a node that is 40 ms away is named") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Cluster cluster(8);
  const Words slow{"tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "40ms"};
  if (run(cluster.hosts.on(4, slow)).exit_code != 0) return skip("this kernel has no netem");
  const Told told = cluster.doctor();
  expect(told, {{"round trip", "node4: ", "node4: 4"}});  // 40 ms and a little
  CHECK(told.exit_code == 0);
}
TEST_SUITE_END();

TEST_CASE("each fault of a node is named, with the node") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Cluster cluster(5);
  cluster.must(
      1, {"sh", "-c", "head -c 64m /dev/zero >" + (cluster.hosts.directory() / "full").string() + "; true"});
  cluster.start_by(2, {"prlimit", "--nofile=200:200"});
  cluster.start_by(3, {"env", "DTRUN_CPU=baseline"});
  cluster.start_by(4, {"sh", "-c", "exec \"$@\" train.seed=7", "sh"});
  const Told told = cluster.doctor(config(cluster));
  expect(told, {{"output_dir", "node1", "three checkpoints need"},
                {"open files", "node2", "limit is 200"},
                {"processors", "node3", "the others have"},
                {"config", "node4", "the others have"}});
  CHECK(told.exit_code == 1);
}

TEST_SUITE_BEGIN("control_groups");
TEST_CASE("a control group that gives less than the workers use is named, with the node") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const std::filesystem::path old = "/sys/fs/cgroup/cpu", group = old / unique("dtrun-doctor");
  std::error_code error;
  if (!std::filesystem::exists(old / "cpu.cfs_quota_us", error) &&
      !std::filesystem::exists(old / "cpu.shares", error))
    return skip("no control group of version 1 for the CPU");
  if (!std::filesystem::create_directory(group, error)) return skip("no control group can be made");
  std::ofstream(group / "cpu.cfs_quota_us") << 150'000;
  Cluster cluster(3);
  cluster.start_by(1, {"sh", "-c", "echo $$ >" + (group / "cgroup.procs").string() + "; exec \"$@\"", "sh"});
  const Told told = cluster.doctor({"--nproc_per_node", "2"});
  eventually([&] { return std::filesystem::remove(group, error); });
  expect(told, {{"CPUs", "node1", "gives 1.5 CPUs' time for 2 workers"}});
}
TEST_SUITE_END();

TEST_CASE("a node with another build of dtrun is named, and one with little shared memory") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Cluster cluster(3);
  const std::filesystem::path folder = cluster.hosts.seen_from_here(1, "other");
  std::filesystem::create_directory(folder);
  std::filesystem::copy(DTRUN_BIN_DIR "/dtrun-worker", folder / "dtrun-worker");
  std::string program = read_text(kDtrun);
  const std::string version = run({kDtrun, "--version"}).out;
  std::string id;  // the bytes of the build's id
  for (std::size_t at = version.find(", build ") + 8; at + 1 < version.size(); at += 2)
    id += static_cast<char>(std::stoi(version.substr(at, 2), nullptr, 16));
  const std::size_t place = program.find(id);
  REQUIRE(place != std::string::npos);
  program[place] = static_cast<char>(program[place] ^ 1);
  std::ofstream(folder / "dtrun", std::ios::binary) << program;
  std::filesystem::permissions(folder / "dtrun", std::filesystem::perms::owner_all);
  cluster.start_by(
      1,
      {"sh", "-c", "shift; exec " + (cluster.hosts.directory() / "other/dtrun").string() + " \"$@\"", "sh"});
  cluster.must(2, {"mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"});
  const Told told = cluster.doctor();
  expect(told,
         {{"dtrun", "node1", "the others have dtrun"}, {"shared memory", "node2", "/dev/shm has 64 MB"}});
  CHECK(told.exit_code == 1);
}

TEST_CASE("a node that does not come is told after the wait, and the others are looked at all the same") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  Cluster cluster(3);
  cluster.leave_out(2);
  const Told told = cluster.doctor({"--wait", "3"});
  CHECK_MESSAGE(told.exit_code == 69, told.output);
  CHECK(told.output.find("2 of 3 came") != std::string::npos);
}

TEST_CASE("a job whose nodes do not meet ends with the doctor's line for that job") {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const Ended ended = run({kDtrun, "--nnodes", "2", "--rdzv_endpoint", endpoint, "--nproc_per_node", "1",
                           "--rdzv_conf", "join_timeout=1", "--", "true"});
  CHECK(ended.exit_code == 69);
  CHECK_MESSAGE(
      ended.err.ends_with("on every node: dtrun doctor --nnodes 2 --rdzv_endpoint " + endpoint + "\n"),
      ended.err);
}

TEST_CASE("named hosts are looked at from one place") {
  if (const std::string why = why_no_hosts(); !why.empty()) return skip(why);
  const Cluster cluster(2);
  // In ssh's place, with a host's name and the command.
  std::string shell = "#!/bin/sh\nhost=$1; shift\ncase $host in\n";
  for (int i = 0; i < 2; ++i)
    shell += Hosts::name(i) + ") exec " + shell_text(cluster.hosts.on(i, {})) + " \"$@\";;\n";
  const std::filesystem::path script = cluster.hosts.directory().parent_path() / "shell";
  write_text(script, shell + "esac\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const Ended ended = run(cluster.hosts.on(0, {kDtrun, "doctor", "--json", "-H", "node0,node1", "--ssh",
                                               script.string(), "--chdir", "/"}),
                          {std::string("PATH=") + DTRUN_BIN_DIR + ":/usr/sbin:/usr/bin:/sbin:/bin"});
  CHECK_MESSAGE(ended.exit_code == 0, ended.err);
  const std::string all = ended.out + ended.err;
  CHECK_MESSAGE(ended.out.find("2 of 2 came") != std::string::npos, all);
}

}  // namespace dtrun::doctor_test
