// The exit codes of dtrun and dtrun-worker: a contract with users' scripts (sysexits.h names).
#pragma once

#include <string>

namespace dtrun {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 64;        // wrong command line
inline constexpr int kExitDataError = 65;    // the result is of no use: training diverged
inline constexpr int kExitNoInput = 66;      // input named in the config is missing or unreadable
inline constexpr int kExitUnavailable = 69;  // no rendezvous: not enough nodes in time, store not reachable
inline constexpr int kExitSoftware = 70;     // a bug in dtrun
inline constexpr int kExitOsError =
    71;  // a GPU failed while training, or the system refuses what a job needs
inline constexpr int kExitCannotCreate = 73;  // a directory or file to write cannot be made, or is in use
inline constexpr int kExitIo = 74;  // no room, or a broken disk, for something that the job cannot do without
// A scheduler told dtrun to stop, and the workers have saved their state: start the job again.
inline constexpr int kExitStartAgain = 75;
inline constexpr int kExitNoPermission = 77;  // no job key, or another one than the coordinator has
inline constexpr int kExitConfig = 78;        // invalid config.json

// Between dtrun-worker and its agent only; dtrun itself never ends with these two in this sense.
inline constexpr int kExitWorkerStopped =
    75;  // ended early at an agreed step because it, or a peer, was told to
inline constexpr int kExitWorkerPeerLost = 76;  // ended because a collective with its peers broke

inline constexpr int exit_code_of_signal(int signal) { return 128 + signal; }

// True for failures that the same config and input would bring again: a restart cannot help.
bool is_deterministic_failure(int exit_code);

// The cause of a worker's end if its exit code or signal alone does not tell. The values are the wire's.
enum class EndCause { kUnknown = 0, kOutOfMemory = 1, kHung = 2 };

// "exit code 3", "signal 9 (SIGKILL)", "signal 9 (SIGKILL): out of memory"
std::string describe_exit(int exit_code, int signal, EndCause cause = EndCause::kUnknown);

}  // namespace dtrun
