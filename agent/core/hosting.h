// Who has the coordinator, decided once: from what options, cluster and launcher say, before the agent
// starts. agent/link.h carries it out. Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dtrun {

// One node: its agent has the coordinator, on a Unix socket.
struct Standalone {};

// A process elsewhere has it: the agent of another node, or a `dtrun store`.
struct External {
  std::string host;  // name or numeric address
  // Where the coordinator may be, in this order: another program may have the first ones. At least one.
  std::vector<int> ports;
};

// One host has it for as long as the run lasts, and perhaps that is this one.
struct FixedHost {
  std::string host;
  std::vector<int> ports;  // as External has them
  // Where this agent listens, numeric. Unset: the agent finds out whether the name `host` is this machine's.
  std::optional<std::string> listen_address = {};
};

// One of several hosts has it, and where that is lost the others choose the next one.
struct Candidates {
  std::vector<std::string> hosts;  // in the order in which they take over
  std::vector<int> ports;          // each host listens on one of them
  // What all of them call these hosts, by whatever addresses they reach each other: "n0,n1,n2 port 29400".
  std::string name = {};
  std::optional<int> own = {};      // this agent's place among `hosts`, -1: none; unset: the agent finds out
  std::string listen_address = {};  // numeric; empty unless `own` is a place
  bool alone = false;               // of two hosts each goes on without the other
  bool first_start = false;         // no agent of this run was on this machine before
};

using Hosting = std::variant<Standalone, External, FixedHost, Candidates>;

// What a cluster or a launcher knows of this process, which has its place from it.
struct Placement {
  std::optional<bool> hosts = {};  // whether it is on the first host; unset: its address tells
  int own_host = -1;               // its place among the hosts; -1: none
  bool starts_once = false;        // all processes start together, and none in place of one that has ended
};

struct HostingQuestion {
  int min_nodes = 1, max_nodes = 1;
  // As options, cluster or launcher name them, the one that has the coordinator first; none: one node.
  std::vector<std::string> hosts = {};
  std::vector<int> ports = {};              // as External has them
  std::vector<std::string> names = {};      // of `hosts`, the same everywhere; empty: `hosts` are
  std::optional<Placement> placement = {};  // unset: options name the hosts
  std::optional<bool> is_host = {};         // --rdzv_conf is_host
  std::optional<bool> failover = {};        // --rdzv_conf failover: always or never
  bool any_address = false;                 // others may come to this machine by any of its addresses
};

struct OwnAddresses {
  std::vector<std::string> numeric = {};  // of this machine; loopback need not be among them
  std::string localhost = "127.0.0.1";    // what that name means here
};

struct HostingDecision {
  Hosting hosting;
  std::string notice = {};  // what people should know; empty: nothing
};
HostingDecision decide_hosting(const HostingQuestion& question, const OwnAddresses& own);

// The text by which candidates know each other: a host that has another one is none of theirs.
std::string list_of(const Candidates& candidates, const std::string& run_id);

// Where the coordinator may be; none of a Standalone one.
std::vector<std::string> hosts_of(const Hosting& hosting);
std::vector<int> ports_of(const Hosting& hosting);

// Whether this agent may have the coordinator; nothing: the agent finds out once it runs.
std::optional<bool> may_host(const Hosting& hosting);

}  // namespace dtrun
