// Drives the pure state machines (runs.h) with real time and real connections. Lives on one Strand: every
// member function but members() is called there.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/election/election.h"
#include "rendezvous/core/run/runs.h"
#include "rendezvous/server/run_view.h"
#include "rendezvous/server/traces.h"

namespace dtrun::rendezvous {

// One agent's stream, as the coordinator sees it. Thread-safe; outlives the stream itself.
class AgentStream {
 public:
  virtual ~AgentStream() = default;
  virtual void send(v1::FromCoordinator message) = 0;
  virtual void close(bool abort) = 0;  // after all queued messages, or at once
};

// Lets only one of several coordinators act (candidate.h), and keeps the record for later ones. Thread-safe.
class Fence {
 public:
  virtual ~Fence() = default;
  // True if this one acts in this term; once false, it stays so.
  virtual bool acts(std::int64_t term) const = 0;
  virtual void resign(std::int64_t term) = 0;  // acts() was false
  // `record` becomes the next version; the first is the one that lead() was called with.
  virtual void write(std::int64_t term, std::string record) = 0;
  virtual void heard_of(std::int64_t term) = 0;  // a term that a member obeyed
};

class Coordinator {
 public:
  struct Options {
    bool separate = false;   // `dtrun store`: any number of runs, and no agent goes down with it
    Fence* fence = nullptr;  // null: no other process could be the coordinator
    std::string host = {};   // id of the only member that is believed to host this coordinator
    // Called when a run is over, and all its members have left.
    std::function<void(const std::string& run_id)> ended = {};
    std::function<void(const std::string& line)> notice = {};  // called with a line for people
    std::function<void()> leads = {};  // called when this one becomes the coordinator, where others may be
  };
  explicit Coordinator(Options options);

  // With a fence: lead() begins with the record of earlier coordinators, as the leader of a term; step_down()
  // forgets everything, and breaks all connections; written() reports that a majority has this version of the
  // record.
  void lead(const election::BecomeLeader& lead);
  void step_down();
  void written(std::int64_t version);
  // True if this one answers. Once a run is over, and a majority knows, it tells its last members, whichever
  // host leads.
  bool leads();

  // False if it does not lead.
  bool opened(ConnectionId id, std::shared_ptr<AgentStream> connection);
  void received(Event event);
  void broken(ConnectionId id);

  // Acts on all deadlines that have passed; returns the next one.
  Millis tend();

  // The status of the run with this id, also of an ended one as long as it is kept. "": of all runs, and
  // those that ended in the last ten minutes.
  v1::StatusReply status(const std::string& run_id) const;

  // The same runs for people who look on, with what is newer than `mark` in the history of one.
  std::vector<RunView> look(const std::string& run_id, const HistoryMark& mark) const;
  void set_page(PageAddress page) { page_ = std::move(page); }

  // Calls `told` once, with the status of the run once it is over: at once if it is over already, and with no
  // run if it is not known here. No call after forget_waiter(id).
  using Told = std::function<void(v1::StatusReply)>;
  void await_end(ConnectionId id, const std::string& run_id, Told told);
  void forget_waiter(ConnectionId id) { waiters_.erase(id); }

  // Has the run's nodes tell what their workers do. Calls `told` once; see Traces.
  void trace(const v1::TraceRequest& request, Traces::Told told);
  void traced(ConnectionId id, v1::TracePart part);

  // Any thread. One more while members may come for the end of a run that an earlier coordinator knew.
  int members() const { return members_.load(); }

 private:
  struct Waiter {
    std::string run_id;
    Told told;
  };

  // A step's message that waits until a majority has the record's version.
  struct Unsaid {
    std::int64_t version;
    Action action;
  };

  bool is_over() const;
  bool may_act();
  void forget();
  void keep_record(const Event& event, const std::vector<Action>& actions);
  bool is_written() const { return binding_ <= written_; }
  const State* find(const std::string& run_id) const;
  std::vector<const State*> recently_ended() const;
  std::vector<const State*> wanted(const std::string& run_id) const;
  v1::RunStatus status(const State& state) const;
  void tell_waiters();
  void take(const Event& event);
  void say(const Action& action);
  void tell_news(const std::vector<Action>& actions);
  void tell_people();

  const Options options_;
  Runs runs_;
  std::string instance_;  // sent in each JoinAck: another one means that the store is empty again
  bool leading_ = true;
  std::int64_t term_ = 0;
  std::vector<RunRecord> record_;
  // Versions of the record: the newest, the newest that must not be contradicted, and the majority's.
  std::int64_t version_ = 0, binding_ = 0, written_ = 0;
  std::deque<Unsaid> unsaid_;
  std::map<std::string, std::pair<Phase, std::int64_t>> told_;  // by run: the last facts told by notice()
  std::map<ConnectionId, std::shared_ptr<AgentStream>> connections_;
  std::map<ConnectionId, Waiter> waiters_;  // for the end of a run
  Traces traces_;
  std::optional<PageAddress> page_;
  std::atomic<int> members_{0};
};

}  // namespace dtrun::rendezvous
