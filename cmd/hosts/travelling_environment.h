// Chooses the environment variables that go to the other hosts: all, as with srun, except those that belong
// to this session, this host, or the launcher around us. Pure. Entries are "NAME=VALUE" as in environ; values
// are bytes, never looked at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/core/status.h"

namespace dtrun::cmd {

// A rule of -x or --env_file.
struct EnvironmentRule {
  enum Effect {
    kSend,  // the variable as it is here, also one that would stay
    kSet,   // to `value`
    kStay,  // variables that match `name`, a pattern with * and ?, stay here
  };
  Effect kind = kSend;
  std::string name;
  std::string value = {};

  bool operator==(const EnvironmentRule&) const = default;
};

// The argument of one -x: "NAME", "NAME=VALUE", "^PATTERN". A failure has EX_USAGE.
Result<EnvironmentRule> parse_environment_rule(const std::string& text);

// The text of --env_file (DeepSpeed's .deepspeed_env, Docker's --env-file): lines "NAME=VALUE", "export
// NAME=VALUE" or "NAME" (as it is here); blank lines and lines that begin with '#'. A value is literal up to
// the end of the line: '=', quotes and spaces belong to it. A failure has EX_CONFIG and names path:line.
Result<std::vector<EnvironmentRule>> parse_environment_file(std::string_view text, const std::string& path);

// The travelling variables of `own`, in its order, then those that rules add, in theirs. The last rule that
// matches a name decides on it. The job's key (DTRUN_KEY) never travels, whatever the rules say: it has a
// way of its own.
std::vector<std::string> travelling_environment(const std::vector<std::string>& own,
                                                const std::vector<EnvironmentRule>& rules);

// Names that rules send although `own` does not have them: worth a warning, as a misspelt -x is silent
// otherwise.
std::vector<std::string> not_set_here(const std::vector<std::string>& own,
                                      const std::vector<EnvironmentRule>& rules);

// "NAME=VALUE" for people to read: "NAME=***" if the name sounds like a secret (KEY, TOKEN, SECRET, PASSWORD,
// …).
std::string masked(const std::string& entry);

}  // namespace dtrun::cmd
