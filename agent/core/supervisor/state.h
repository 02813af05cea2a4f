// The agent's state when it decides (decide.h): of the connection with the coordinator, of this node's
// workers, of the current generation, and of the reasons to end. Each part is written by the class that is
// named at it, and by no other; all of them read the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/vocabulary.h"
#include "proto/core/millis.h"
#include "proto/core/times.h"

namespace dtrun::agent {

// A signal repeated this soon counts once: timeout(1) and some supervisors send it twice, and people do not
// press a key this fast.
inline constexpr Millis kSameSignal = 250;

// The signals by which schedulers stop jobs. A scheduler sends those that it is configured to, one after the
// other or twice: a second one means no hurry, unlike a person's second Ctrl-C.
bool is_schedulers(int signal);

struct Settings {
  bool builtin = false;  // dtrun-worker: understands Stop orders, and SIGTERM as "checkpoint and end"
  // Its workers outlive generations: those of the built-in trainer, and of other programs those that say so.
  bool in_memory_recovery = false;
  int nproc = 1;
  bool has_gpu_driver = false;  // it is asked of the GPUs of workers that ended
  bool begin_together = false;  // a launcher starts all nodes at once: a short wait for the others is no news
  bool may_be_started_again = false;  // a scheduler tells when to stop: kExitStartAgain
  bool has_successor = false;         // if the coordinator's host ends, another one takes over
  bool is_replaced = false;           // if this process is lost, another one is started in its place
  bool elastic = false;               // a range of nodes: others may go on without this one
  std::string endpoint;               // "host:port" or "unix:PATH", for people, as it is known at the start
  std::string host;                   // this node's name
  Millis join_timeout = 600000;
  Millis keep_alive = 15000;  // a node that is silent for this long is given up
  Millis shutdown_timeout = 30000;
  Millis pause_limit = Times().pause.count();
  Millis without_coordinator = Times().without_coordinator.count();
  // How long to wait for a lost coordinator. Unset: at least join_timeout for a `dtrun store`, which will be
  // started again, if is_replaced, and of a range, whose network may be cut. Else without_coordinator: of a
  // fixed number of nodes, or if its host answers without it.
  std::optional<Millis> read_timeout;
  std::vector<std::pair<int, int>> no_restart_exit_codes = {{2, 2}, {64, 78}};  // of other programs
};

// Of this node's connection with the coordinator, and of what the coordinator said. Written by Connection.
struct ConnectionState {
  bool hosting = false;  // the coordinator lives in this process
  bool connected = false;
  bool ever_connected = false;
  Millis lost_at = 0;
  bool silent = false;            // it was lost since nothing came from it for keep_alive
  std::optional<Millis> gone_at;  // since then its host answers without it; none: nothing answers
  std::string why_lost;
  bool separate = false;  // the coordinator is a `dtrun store`
  bool seated = true;     // it knows this node as part of the current generation, as far as it has said
  std::optional<Millis> tell_at;  // when to say that it is lost, unless it is back
  bool told = false;
  std::optional<Millis> heartbeat_at;
  Millis heartbeat_interval = 1000;
  Millis heartbeat_sent_at = 0;
  std::string address;
  std::string endpoint;  // where it is, for people
  std::optional<rendezvous::WaitStatus> waiting;
  Millis waiting_at = 0;  // when that came
  std::optional<Millis> notice_at;
  int notices = 0;           // said of this wait since there was news
  std::string told_news;     // the newest about the run's nodes
  std::string told_restart;  // reason of the restart whose back-off was announced
};

// One of this node's workers, by local rank: its newest process.
struct Worker {
  enum Stage {
    kNone,     // there was none yet
    kLoading,  // outlives generations: not ready for work yet
    kReady,    // the same: waits for its place in a generation, its trained state in memory
    kAtWork,
    kEnded,  // see outcome
  };
  int local_rank = 0;
  Stage stage = kNone;
  int serial = -1;        // of its process
  bool part = false;      // of the current generation; a replacement that is not stays outside until the next
  int rank = 0;           // in it
  bool outlives = false;  // of another program: it has said that it outlives generations
  bool lost = false;      // its unit is not whole any more, so it was killed
  std::optional<std::int64_t> step = {};  // steps done by the state in its memory
  bool torn = false;                      // that is half a step's
  bool told_end = false;                  // there is no further place for it
  WorkerOutcome outcome = {};
  bool held = false;             // its process starts once the GPUs are free
  bool gpu_asked = false;        // of its GPU's part in its end; the answer is to come
  std::string gpu_trouble = {};  // that answer

  bool alive() const { return stage != kNone && stage != kEnded; }
};

// Written by Workers.
struct WorkersState {
  std::vector<Worker> all;  // by local rank
  int next_serial = 0;
  bool awaits_gpus = false;  // asked whether they are free
  // All workers of another program, here or on another node, have said that they outlive generations: one
  // that is started is expected to.
  bool known_to_outlive = false;
  int failed_warm_ups = 0;  // in a row
  std::set<int> signals;    // that we sent to workers of the current generation
  // Of a program, as its workers have said: so many neighbours by local rank are a unit. They hold one state
  // together, and so they live and die together, and are placed together. Divides their number.
  int unit = 1;

  int running() const;     // those whose process has not ended
  int at_work() const;     // also those that are lost
  int waiting() const;     // ready, in units that are so as a whole
  bool asks_gpus() const;  // a failed worker's GPU
  bool all_ok() const;     // each that is part of the generation ended with 0; false if none is
  // Itself among them.
  std::span<const Worker> unit_of(const Worker& worker) const;
};

// Of the current generation, or the last one. Written by Generation.
struct GenerationState {
  Assignment assignment;  // generation 0: none yet
  Millis started_at = 0;
  std::optional<Progress> progress;  // as the first of its workers said last
  bool failure_sent = false;
  std::optional<WorkerOutcome> reported;  // the outcome that was sent, to be sent again after a reconnect
  bool closed = true;               // Finished or Stopped was sent: nothing more to say of this generation
  bool stopping = false;            // its workers were told to stop, or to pause, or do so by themselves
  std::string why_stopping;         // empty: a signal told us to, or already said
  std::optional<Millis> notice_at;  // when to say why, unless they have ended
  bool aborted = false;             // told by the control protocol to end at once
  bool parted = false;              // its workers left it, for the coordinator was out of reach
  enum Pause { kNone, kAfterStep, kNow };
  Pause pause = kNone;             // as its workers were told
  std::optional<Millis> pause_at;  // when to wait no longer for the end of the step in hand
  std::optional<Millis> kill_at;
  std::optional<Millis> broken_at;  // when to stop waiting for the cause of a broken collective
  WorkerOutcome broken;
  // A hang: the workers of all nodes are looked at before the first of them is ended, for then the others end
  // too.
  std::optional<Millis> look_until;
  bool hang_found = false;  // here; else on another node, with this reason:
  std::string why_look;
  int kept = 0, replaced = 0;      // of the workers that began it
  std::optional<Assignment> next;  // starts as soon as no worker of this generation runs
  std::optional<Completion> completion;
  // These live on in the next generation.
  std::optional<Millis> paused_since;  // workers that outlive a generation train again from the next one on
  std::optional<std::int64_t> held;    // steps done by the state that workers of a program had here
  std::optional<std::int64_t>
      lost;  // the same, which no worker has any more; people are told as work begins again

  std::int64_t number() const { return assignment.generation; }
};

// Of the reasons to end, of which the first that applies wins: a signal, a reason to give up, the job's end.
// Written by Ending.
struct EndingState {
  int told_signal = 0;
  Millis told_at = 0;
  std::optional<Millis> announce_at;  // when to tell the other nodes that this one will leave
  std::optional<int> give_up;         // exit code
  std::string give_up_reason;
  std::optional<int> leaving;  // exit code, once the others know that the coordinator goes
  std::optional<JobEnd> job_end;
  bool reported = false;  // people were told how the job failed
  std::optional<Millis> members_notice_at, members_deadline;
  bool ended = false;

  // A signal that comes now is the one before, delivered twice.
  bool told_just_now(Millis now) const { return now - told_at < kSameSignal; }
};

struct State {
  Settings settings;
  Millis started_at = 0;
  ConnectionState connection;
  WorkersState workers;
  GenerationState generation;
  EndingState ending;

  // In-memory recovery: workers keep their trained state from one generation to the next, and are paused
  // where others are stopped. False if only some of this node's would: one that knows nothing of it would go
  // on beside its replacement, so all are started again.
  bool workers_outlive() const;
  // The same for those that are to be started: they load outside of a generation.
  bool workers_warm_up() const {
    return settings.in_memory_recovery && (settings.builtin || workers.known_to_outlive);
  }
  // The number of workers that have to end, or to pause, before this node is done with the generation.
  int awaited() const { return workers_outlive() && !is_ending() ? workers.at_work() : workers.running(); }
  // This node's workers are at work in a generation, as far as is known here.
  bool takes_part() const;
  // True if reports of progress are news from workers that are, or were, in this generation. A worker that
  // left it repeats its last report.
  bool progresses(std::int64_t of_generation) const;

  // A scheduler told us to stop, which may start the job again.
  bool told_by_scheduler() const {
    return settings.may_be_started_again && is_schedulers(ending.told_signal);
  }
  // Once the workers have ended. REQUIRES: ending.told_signal
  int exit_code_when_told() const;

  // A signal told it to end, no person's Ctrl-C, and another process comes in its place.
  bool gives_way() const;

  bool is_ending() const {
    return ending.ended || ending.told_signal != 0 || ending.give_up || ending.job_end;
  }
  // All its workers ended with 0, by themselves. Those of the built-in trainer, or that outlive generations,
  // never do otherwise: they may have been told to pause just when training was complete.
  bool all_finished() const {
    return workers.all_ok() && (settings.builtin || workers_outlive() || !generation.stopping);
  }
  // This node's part of the generation is done.
  bool succeeded() const;
  // The same if this is the only node: it knows that the job succeeded, even without a coordinator.
  bool job_succeeded() const;
  // The state of workers that wait is the job's last one, as far as this node knows: no other node goes on
  // with it, and none has ended the training. REQUIRES: is_ending()
  bool has_last_state() const;
  // The end of the wait for a missing coordinator.
  Millis connection_deadline() const;
  // When workers at work leave their generation: a coordinator that is out of reach has given this node up by
  // then, if it lives, and may begin another generation without it.
  std::optional<Millis> parts_at() const;
};

// A lost coordinator that is back this soon is not worth a line on the terminal.
inline constexpr Millis kBlip = 1000;

}  // namespace dtrun::agent
