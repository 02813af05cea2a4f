#include "cmd/plan/rendezvous_options.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "rendezvous/identity/job_key.h"
#include "tests/cmd/plan/planned.h"
#include "tests/support/folder.h"

namespace dtrun::rendezvous_options_test {

using namespace dtrun::cmd;
using std::chrono::milliseconds;

TEST_CASE("a job of several nodes knows the line that looks what keeps them apart, as its own was typed") {
  const auto line = [](const std::vector<std::string>& words) { return good(words).doctor; };
  CHECK(line({"--nnodes", "2:4", "--rdzv-endpoint", "h:7", "--nproc_per_node", "3", "--local_addr", "::1",
              "--", "x"}) == "dtrun doctor --nnodes 2:4 --rdzv_endpoint h:7 --local_addr ::1");
  CHECK(line({"--", "x"}).empty());
  // The doctor's own run.
  CHECK(line({"--nnodes", "2", "--rdzv_endpoint", "h", "--", kItself, "doctor"}).empty());
}

TEST_CASE("the endpoint may be a name, an IPv4 or an IPv6 address, with or without a port") {
  const auto endpoint = [&](const std::string& text) {
    const auto spec = good({"--nnodes", "2", "--rdzv_endpoint", text, "--", "x"});
    return host(spec) + " " + std::to_string(port(spec));
  };
  CHECK(endpoint("node0") == "node0 29400");
  CHECK(endpoint("node0:1234") == "node0 1234");
  CHECK(endpoint("10.0.0.1:1234") == "10.0.0.1 1234");
  CHECK(endpoint("fd77::1") == "fd77::1 29400");
  CHECK(endpoint("[fd77::1]") == "fd77::1 29400");
  CHECK(endpoint("[fd77::1]:1234") == "fd77::1 1234");
  for (const char* wrong : {"node0:", "node0:0", "node0:65536", "node0:http", "[::1", "[::1]x", ":29400",
                            "http://node0:1", " node0:1", "node0 node1", "user@node0"}) {
    CHECK_MESSAGE(bad({"--nnodes", "2", "--rdzv_endpoint", wrong, "--", "x"}).find("--rdzv_endpoint=") == 0,
                  wrong);
  }
}

TEST_CASE("an address of a single link is no endpoint for several nodes") {
  for (const char* text : {"fe80::1", "[fe80::1%eth0]:1234"})
    CHECK(bad({"--nnodes", "2", "--rdzv_endpoint", text, "--", "x"}).find("single link") !=
          std::string::npos);
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
  CHECK_FALSE(may_host(good({"--nnodes", "2", "--rdzv_endpoint", "h", "--", "x"}).rendezvous.hosting));
  for (const char* yes : {"1", "true", "y"}) CHECK(may_host(good(conf(yes)).rendezvous.hosting) == true);
  for (const char* no : {"0", "false", "n"}) CHECK(may_host(good(conf(no)).rendezvous.hosting) == false);
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
  CHECK(host(three.spec.value()) == "a");
  CHECK(port(three.spec.value()) == 7);
  CHECK(candidates(three.spec.value()).hosts == Hosts{"a", "b", "c"});
  CHECK_FALSE(candidates(three.spec.value()).alone);
  CHECK(three.notices.empty());
  CHECK(has_one_host(planned("a,b,c", "failover=never").spec.value()));
  CHECK(planned("a,b,c", "failover=always").notices.at(0).find("has no effect") != std::string::npos);

  const Planned two = plan({"--nnodes", "2", "--rdzv_endpoint", "a,b", "--", "x"});
  REQUIRE(two.spec.ok());
  CHECK(host(two.spec.value()) == "a");
  CHECK(has_one_host(two.spec.value()));
  CHECK(two.notices.at(0).find("b does not take over") != std::string::npos);
  CHECK(two.notices.at(0).find("failover=always") != std::string::npos);
  CHECK(planned("a,b", "failover=never").notices.empty());
  Planned always = planned("a,b", "failover=always");
  CHECK(candidates(always.spec.value()).hosts == Hosts{"a", "b"});
  CHECK(candidates(always.spec.value()).alone);
  CHECK(always.notices.empty());

  CHECK(planned("a", "failover=always").notices.at(0).find("names one host") != std::string::npos);
  CHECK(bad({"--nnodes", "2", "--rdzv_endpoint", "a,b", "--rdzv_conf", "failover=yes", "--", "x"}) ==
        "--rdzv_conf failover=yes: expected always or never");
  CHECK(bad({"--rdzv_conf", "fail_over=never", "--", "x"}).find("did you mean failover?") !=
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
  CHECK(host(spec) == "10.0.0.1");
  CHECK(port(spec) == 1235);
  CHECK(spec.rendezvous.master_port == 1234);
  CHECK(spec.rendezvous.master_address == "10.0.0.1");
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}).find("needs RANK") != std::string::npos);
  Variables last = variables;
  last["RANK"] = "3";
  last["MASTER_PORT"] = "65535";  // the one beside it is below
  CHECK(port(good({"--rdzv_backend", "env", "--", "x"}, last)) == 65534);
  last["MASTER_PORT"] = "65536";
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}, kExitUsage, last).find("at most 65535") !=
        std::string::npos);
  Variables outside = variables;
  outside["RANK"] = "4";
  CHECK(bad({"--rdzv_backend", "env", "--", "x"}, kExitUsage, outside).find("less than WORLD_SIZE") !=
        std::string::npos);
}

TEST_CASE("MASTER_PORT moves off the port at which the nodes meet, and a line says so") {
  const auto moved = [](std::vector<std::string> words, const Variables& variables = {}) {
    words.insert(words.end(), {"--", "x"});
    const Planned planned = plan(words, variables);
    REQUIRE(planned.spec.ok());
    const bool told = std::ranges::any_of(
        planned.notices, [](const auto& text) { return text.starts_with("MASTER_PORT is "); });
    const int port = planned.spec.value().rendezvous.master_port;
    CHECK(told == (port != 5000));
    return port;
  };
  const auto pod =
      Variables{{"PET_NNODES", "2"}, {"PET_RDZV_ENDPOINT", "h:5000"}, {"PET_MASTER_PORT", "5000"}};
  CHECK(moved({"--nnodes", "2", "--rdzv_endpoint", "h:5000", "--master_port", "5000"}) == 5001);
  CHECK(moved({"--nnodes", "1", "--rdzv_endpoint", "h:5000", "--master_port", "5000"}) == 5001);
  CHECK(moved({}, pod) == 5001);
  CHECK(moved({"--nnodes", "2", "--rdzv_endpoint", "h:5001", "--master_port", "5000"}) == 5000);
  CHECK(moved({"--standalone", "--rdzv_endpoint", "h:5000", "--master_port", "5000"}) == 5000);
}

TEST_CASE("--master_addr and --master_port without an endpoint are torchrun's static rendezvous") {
  const JobSpec spec = good(
      {"--nnodes", "2", "--node_rank", "1", "--master_addr", "head", "--master_port", "29500", "--", "x"});
  CHECK(host(spec) == "head");
  CHECK(port(spec) == 29501);
  CHECK(spec.rendezvous.master_address == "head");
  CHECK(spec.rendezvous.master_port == 29500);
  const JobSpec v6 = good({"--nnodes", "2", "--node_rank", "0", "--master_addr", "[fd00::1]", "--", "x"});
  CHECK(host(v6) == "fd00::1");
  CHECK(port(v6) == 29400);
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
  CHECK(host(fixed) == "h");
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
  CHECK(alone(spec));
  CHECK(spec.rendezvous.master_address == "localhost");
  CHECK(spec.rendezvous.master_port == 4711);
  CHECK(alone(good({"--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "--", "x"})));
  CHECK(alone(good({"--rdzv_endpoint=", "--", "x"})));  // torchrun's default
  CHECK(bad({"--nnodes", "2", "--rdzv_endpoint=", "--", "x"}).find("several nodes need --rdzv_endpoint") ==
        0);
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

TEST_CASE("several nodes have a key: one that is given, or the user's, made when it is first needed") {
  const std::vector<std::string> job{"--nnodes", "2", "--rdzv_endpoint", "here", "--", "x"};
  CHECK(good(job).rendezvous.key->text() == kKey);
  const test::Folder home;
  const Variables user{{"HOME", home.path().string()}};
  std::vector<std::string> dry = job;
  dry.insert(dry.begin(), "--dry_run");
  CHECK_FALSE(good(dry, user).rendezvous.key);
  CHECK(std::filesystem::is_empty(home.path()));
  const std::string made = good(job, user).rendezvous.key->text();
  CHECK(made.starts_with("dtk1_"));
  CHECK(good(job, user).rendezvous.key->text() == made);
  CHECK(good(dry, user).rendezvous.key->text() == made);
}

TEST_CASE("a job of one node has no key, and says so to who gives it one on the command line") {
  const Planned planned = plan({"--key_file", "/nonexistent", "--insecure=0", "--", "x"});
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  CHECK_FALSE(planned.spec.value().rendezvous.key);
  REQUIRE(planned.notices.size() == 2);
  CHECK(planned.notices[0] == "--key_file has no effect on a single node");
  CHECK(plan({"--", "x"}, {{"DTRUN_KEY_FILE", "/nonexistent"}}).notices.empty());
}

TEST_CASE("plain text is for who asks for it, and said") {
  const std::vector<std::string> job{"--insecure", "--nnodes", "2", "--rdzv_endpoint", "fd00::1", "--", "x"};
  const Planned planned = plan(job, {{"HOME", "/nonexistent"}});
  REQUIRE_MESSAGE(planned.spec.ok(), planned.spec.status().message());
  CHECK_FALSE(planned.spec.value().rendezvous.key);
  REQUIRE(planned.notices.size() == 1);
  CHECK(planned.notices[0] == "plain text: anybody who can connect to [fd00::1]:29400 may join (--insecure)");
  CHECK(bad(job) == "--insecure asks for plain text and DTRUN_KEY for a key: give one of them");
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
    CHECK(text.find("export DTRUN_KEY=") != std::string::npos);
    CHECK(text.find("--key_file") != std::string::npos);
    CHECK(text.find("--insecure") != std::string::npos);
  }
  // Only where the coordinator would be, a key to copy: two nodes would show two. And only on a terminal: a
  // scheduler's log is for others to read.
  CHECK((here.find("DTRUN_KEY=dtk1_") != std::string::npos) == (isatty(STDERR_FILENO) == 1));
  CHECK(elsewhere.find("dtk1_") == std::string::npos);
  CHECK(elsewhere.find("one that `dtrun key` prints") != std::string::npos);

  const Planned loopback =
      plan({"--nnodes", "2", "--rdzv_endpoint", "localhost:4711", "--", "x"}, {{"HOME", ""}});
  REQUIRE(loopback.spec.ok());
  REQUIRE(loopback.notices.size() == 1);
  CHECK(loopback.notices[0] ==
        "plain text: any user of this machine who can connect to localhost:4711 may join (HOME is not set)");
}

}  // namespace dtrun::rendezvous_options_test
