// What a container leaves to Kubernetes for people: `kubectl describe pod` shows the text of a file that the
// kubelet puts into the container, by default /dev/termination-log
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun::agent {

// The kubelet reads so many bytes.
inline constexpr std::size_t kTerminationMessageBytes = 4096;

// `text`, or its first lines and "…" where it is longer; UTF-8 stays whole.
std::string termination_message(std::string_view text);

// Writes that to $DTRUN_TERMINATION_LOG or /dev/termination-log, in place of what is there. Nothing happens
// where there is no such file; it is never made.
void write_termination_message(std::string_view text);

}  // namespace dtrun::agent
