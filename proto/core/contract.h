// Names that programs must agree on: protocol versions, environment variables, log layout.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrun {

inline constexpr std::uint32_t kControlProtocol = 6;
inline constexpr int kDefaultPort = 29400;

// Between agents and the coordinator (proto/rendezvous.proto): raised with each change that the other end of
// an older build would take wrongly. Builds from before the first one send 0.
inline constexpr int kRendezvousProtocol = 3;

// Between `dtrun --hostfile` and the agents that it starts (proto/launch.proto).
inline constexpr std::uint32_t kLaunchProtocol = 3;
// Printed by an agent before its first frame. A shell's greeting may come before it.
inline constexpr std::string_view kLaunchPreamble("\0dtrun-agent\0\n", 14);

// Larger than any real job; the product of the two fits an int.
inline constexpr int kMaxWorkersPerNode = 1 << 14;
inline constexpr int kMaxNodes = 1 << 16;

// Variables of a worker's environment beside torchrun's own.
inline constexpr char kEnvRunId[] = "DTRUN_RUN_ID";
inline constexpr char kEnvGeneration[] = "DTRUN_GENERATION";
inline constexpr char kEnvNode[] = "DTRUN_NODE";                   // group rank
inline constexpr char kEnvControlFd[] = "DTRUN_CONTROL_FD";        // proto/control.proto
inline constexpr char kEnvRestartCount[] = "DTRUN_RESTART_COUNT";  // job-wide
// A file that the worker touches to say that it makes progress; with --heartbeat-timeout.
inline constexpr char kEnvHeartbeatFile[] = "DTRUN_HEARTBEAT_FILE";
// Unique per agent process. A process that has it belongs to that agent's job, also if its parent is gone.
inline constexpr char kEnvProcessTag[] = "DTRUN_PROCESS_TAG";

}  // namespace dtrun
