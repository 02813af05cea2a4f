// Numbers that a cluster's variables hold. Pure.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "cmd/cluster/place.h"

namespace dtrun::cmd {

// The text of a variable; empty if it is not set.
std::string text_of(const ClusterEnvironment& cluster, const std::string& name);
bool has(const ClusterEnvironment& cluster, const std::string& name);  // and it is not empty

// All of `text` as a decimal number from 0 to `most`, without a sign.
std::optional<int> whole_number(std::string_view text, int most);

// A variable's number from `least` on. EX_USAGE if it is anything else; `job` names the system that set it.
Result<int> number_of(const ClusterEnvironment& cluster, const std::string& name, int least,
                      const std::string& job);

// Several of them, each with the place that it goes to.
struct NumberIn {
  const char* name;
  int least;
  int* to;
};
Status read_numbers(const ClusterEnvironment& cluster, const std::string& job,
                    std::initializer_list<NumberIn> numbers);

// An error for facts of a cluster that contradict each other: the message, and how to run on this node alone.
Status contradiction(const std::string& job, const std::string& what);

// A run's id from a cluster's name for a job: a character that a run id may not have becomes '-'. May be
// empty.
std::string run_id_of(const std::string& name);

}  // namespace dtrun::cmd
