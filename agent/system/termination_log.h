// The message that a container leaves to Kubernetes for people: `kubectl describe pod` shows the text of a
// file that the kubelet puts into the container, by default /dev/termination-log
// (https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrun::agent {

// The kubelet reads at most this many bytes.
inline constexpr std::size_t kTerminationMessageBytes = 4096;

// `text`, or its first lines and "…" where it is longer; UTF-8 stays whole.
std::string termination_message(std::string_view text);

// Replaces the contents of $DTRUN_TERMINATION_LOG or /dev/termination-log by the text. Does nothing if there
// is no such file; never creates it.
void write_termination_message(std::string_view text);

}  // namespace dtrun::agent
