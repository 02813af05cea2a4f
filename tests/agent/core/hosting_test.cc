// Who has the coordinator: every way in which options, a cluster or a launcher name its host.
#include "agent/core/hosting.h"

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dtrun::hosting_test {
namespace {

using Names = std::vector<std::string>;

const OwnAddresses kOwn{.numeric = {"10.0.0.1", "fd00::1"}, .localhost = "::1"};

HostingQuestion named(const Names& hosts) {
  return {.min_nodes = 3, .max_nodes = 3, .hosts = hosts, .ports = {29400, 29401}};
}

HostingQuestion placed(const Names& hosts, const Placement& placement) {
  HostingQuestion question = named(hosts);
  question.placement = placement;
  return question;
}

std::string text(const std::vector<int>& ports) {
  std::string text;
  for (const int port : ports) text += (text.empty() ? "" : ",") + std::to_string(port);
  return text;
}

// "fixed h:29400,29401 listens on 0.0.0.0"
struct Text {
  std::string operator()(const Standalone&) const { return "standalone"; }
  std::string operator()(const External& one) const { return "external " + one.host + ":" + text(one.ports); }
  std::string operator()(const FixedHost& one) const {
    return "fixed " + one.host + ":" + text(one.ports) +
           (one.listen_address ? " listens on " + *one.listen_address : " finds out");
  }
  std::string operator()(const Candidates& list) const {
    std::string hosts;
    for (const std::string& host : list.hosts) hosts += (hosts.empty() ? "" : ",") + host;
    const std::string own = !list.own       ? " finds out"
                            : *list.own < 0 ? " none"
                                            : " " + std::to_string(*list.own);
    return "candidates " + hosts + ":" + text(list.ports) + own +
           (list.listen_address.empty() ? "" : " listens on " + list.listen_address) +
           (list.alone ? " alone" : "") + (list.first_start ? " first start" : "");
  }
};

std::string decided(const HostingQuestion& question) {
  return std::visit(Text(), decide_hosting(question, kOwn).hosting);
}

std::string notice(const HostingQuestion& question) { return decide_hosting(question, kOwn).notice; }

}  // namespace

TEST_CASE("one node needs nobody") {
  CHECK(decided({}) == "standalone");
  CHECK(notice({}).empty());
}

TEST_CASE("a host that is named by its address has the coordinator if the address is its own") {
  CHECK(decided(named({"10.0.0.1"})) == "fixed 10.0.0.1:29400,29401 listens on 10.0.0.1");
  CHECK(decided(named({"fd00::1"})) == "fixed fd00::1:29400,29401 listens on fd00::1");
  CHECK(decided(named({"10.0.0.2"})) == "external 10.0.0.2:29400,29401");
  CHECK(decided(named({"fd00::2"})) == "external fd00::2:29400,29401");
}

TEST_CASE("loopback is always this machine's") {
  CHECK(decided(named({"127.0.0.9"})) == "fixed 127.0.0.9:29400,29401 listens on 127.0.0.9");
  CHECK(decided(named({"::1"})) == "fixed ::1:29400,29401 listens on ::1");
  CHECK(decided(named({"localhost"})) == "fixed localhost:29400,29401 listens on ::1");
}

TEST_CASE("whether a name is this machine's is found out by the agent, who can wait for the name service") {
  for (const char* name : {"node0", "127.example.org", "1.2.3", "10.0.0.1.nip.io"})
    CHECK(decided(named({name})) == "fixed " + std::string(name) + ":29400,29401 finds out");
}

TEST_CASE(
    "is_host=0 is never the host, is_host=1 listens on all addresses where the named one is not its own") {
  for (const auto& [host, listens] : {std::pair("node0", "0.0.0.0"), std::pair("10.0.0.2", "0.0.0.0"),
                                      std::pair("10.0.0.1", "10.0.0.1"), std::pair("localhost", "::1")}) {
    HostingQuestion question = named({host});
    question.is_host = false;
    CHECK(decided(question) == "external " + std::string(host) + ":29400,29401");
    question.is_host = true;
    CHECK(decided(question) == "fixed " + std::string(host) + ":29400,29401 listens on " + listens);
  }
}

TEST_CASE("a cluster that knows who is on the first host is believed, and an option counts more") {
  CHECK(decided(placed({"n1"}, {.hosts = true})) == "fixed n1:29400,29401 listens on 0.0.0.0");
  CHECK(decided(placed({"10.0.0.1"}, {.hosts = false})) == "external 10.0.0.1:29400,29401");
  CHECK(decided(placed({"n1"}, {})) == "fixed n1:29400,29401 finds out");
  HostingQuestion question = placed({"n1"}, {.hosts = true});
  question.is_host = false;
  CHECK(decided(question) == "external n1:29400,29401");
}

TEST_CASE("three hosts of an option are candidates, whose own place each of them finds out") {
  CHECK(decided(named({"a", "b", "c"})) == "candidates a,b,c:29400,29401 finds out");
  HostingQuestion question = named({"a", "b", "c"});
  question.is_host = false;
  CHECK(decided(question) == "candidates a,b,c:29400,29401 none");
  question.is_host = true;
  CHECK(decided(question) == "candidates a,b,c:29400,29401 finds out");
}

TEST_CASE("of two hosts the second takes over only where it is told to") {
  HostingQuestion two = named({"a", "b"});
  CHECK(decided(two) == "fixed a:29400,29401 finds out");
  CHECK(notice(two) ==
        "only a hosts the coordinator: if it is lost, b does not take over, since it cannot tell that from a "
        "cut "
        "network. Name a third host, or give --rdzv_conf failover=always, with which both sides of a cut may "
        "go "
        "on");
  two.failover = true;
  CHECK(decided(two) == "candidates a,b:29400,29401 finds out alone");
  CHECK(notice(two).empty());
  two.failover = false;
  CHECK(decided(two) == "fixed a:29400,29401 finds out");
  CHECK(notice(two).empty());
}

TEST_CASE("failover=never leaves the first host alone, failover=always says where it changes nothing") {
  HostingQuestion three = named({"a", "b", "c"}), one = named({"a"});
  three.failover = one.failover = false;
  CHECK(decided(three) == "fixed a:29400,29401 finds out");
  CHECK(notice(three).empty());
  CHECK(notice(one).empty());
  three.failover = one.failover = true;
  CHECK(decided(three) == "candidates a,b,c:29400,29401 finds out");
  CHECK(notice(three) ==
        "--rdzv_conf failover=always has no effect: of three hosts or more a majority goes on");
  CHECK(decided(one) == "fixed a:29400,29401 finds out");
  CHECK(notice(one) == "--rdzv_conf failover has no effect: --rdzv_endpoint names one host");
}

TEST_CASE("of a step that starts once all three hosts are candidates, and each process knows its place") {
  const Names three{"n1", "n2", "n3"};
  CHECK(decided(placed(three, {.hosts = true, .own_host = 0, .starts_once = true})) ==
        "candidates n1,n2,n3:29400,29401 0 listens on 0.0.0.0 first start");
  CHECK(decided(placed(three, {.hosts = false, .own_host = 2, .starts_once = true})) ==
        "candidates n1,n2,n3:29400,29401 2 listens on 0.0.0.0 first start");
  CHECK(decided(placed(three, {.hosts = false, .starts_once = true})) ==
        "candidates n1,n2,n3:29400,29401 none first start");
  HostingQuestion never = placed(three, {.hosts = false, .own_host = 1, .starts_once = true});
  never.failover = false;
  CHECK(decided(never) == "external n1:29400,29401");
}

TEST_CASE("of pods that come one by one three are candidates only where two must be there from the start") {
  for (const auto& [min, max, list] :
       {std::tuple(3, 3, true), std::tuple(8, 8, true), std::tuple(3, 4, true), std::tuple(2, 2, false),
        std::tuple(2, 4, false), std::tuple(1, 3, false), std::tuple(2, 3, true)}) {
    const std::string nodes = std::to_string(min) + ":" + std::to_string(max);
    CAPTURE(nodes);
    HostingQuestion question = placed({"p0", "p1", "p2"}, {.hosts = false, .own_host = 1});
    question.min_nodes = min;
    question.max_nodes = max;
    CHECK(decided(question) ==
          (list ? "candidates p0,p1,p2:29400,29401 1 listens on 0.0.0.0" : "external p0:29400,29401"));
  }
}

TEST_CASE("over ssh a host listens on all its addresses, since others may come by another one") {
  HostingQuestion question = placed({"10.0.0.1"}, {.hosts = true, .own_host = 0, .starts_once = true});
  question.any_address = true;
  CHECK(decided(question) == "fixed 10.0.0.1:29400,29401 listens on 0.0.0.0");
  question.hosts = {"10.0.0.1", "10.0.0.2", "10.0.0.3"};
  question.names = {"a", "b", "c"};
  CHECK(decided(question) ==
        "candidates 10.0.0.1,10.0.0.2,10.0.0.3:29400,29401 0 listens on 0.0.0.0 first start");
}

TEST_CASE("a list has the same name on all hosts, whatever addresses they use") {
  const auto list = [](const HostingQuestion& question) {
    return list_of(std::get<Candidates>(decide_hosting(question, kOwn).hosting), "7");
  };
  CHECK(list(named({"a", "b", "c"})) == "a,b,c port 29400 of run 7");
  HostingQuestion two = named({"a", "b"});
  two.failover = true;
  CHECK(list(two) == "a,b port 29400 of run 7 (failover=always)");
  HostingQuestion by_ssh = placed({"10.0.0.1", "10.0.0.2", "10.0.0.3"}, {.starts_once = true});
  by_ssh.names = {"a", "b", "c"};
  CHECK(list(by_ssh) == "a,b,c of run 7");
}

TEST_CASE("hosts, ports and whether this agent may host are told of every kind") {
  const auto hosting = [](const HostingQuestion& question) { return decide_hosting(question, kOwn).hosting; };
  const Hosting alone = hosting({});
  CHECK(hosts_of(alone).empty());
  CHECK(ports_of(alone).empty());
  CHECK(may_host(alone) == true);
  for (const auto& [hosts, may] :
       {std::pair(Names{"10.0.0.2"}, std::optional(false)), std::pair(Names{"10.0.0.1"}, std::optional(true)),
        std::pair(Names{"a"}, std::optional<bool>()),
        std::pair(Names{"a", "b", "c"}, std::optional<bool>())}) {
    const Hosting one = hosting(named(hosts));
    CHECK(hosts_of(one) == hosts);
    CHECK(ports_of(one) == std::vector<int>{29400, 29401});
    CHECK(may_host(one) == may);
  }
  CHECK(may_host(hosting(placed({"a", "b", "c"}, {.own_host = 2}))) == true);
  CHECK(may_host(hosting(placed({"a", "b", "c"}, {}))) == false);
}

}  // namespace dtrun::hosting_test
