// The prefix of each line of a worker on the console: a template, filled in once per worker except for the
// time. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/core/millis.h"

namespace dtrun::agent {

struct PrefixFields {
  std::string role;
  int rank = 0;
  int local_rank = 0;
  std::string host;
};

// {role}, {rank}, {local_rank}, {host} and {time} are placeholders, "{{" and "}}" are braces.
inline constexpr const char* kPrefixFields[] = {"role", "rank", "local_rank", "host", "time"};

// The first placeholder of `text` that is unknown; also "{" for one that is not closed.
std::optional<std::string> unknown_placeholder(const std::string& text);

// torchrun's template (python_template.h) as ours: ${role_name}, ${rank}, ${local_rank}, ${hostname};
// anything else is text.
std::string from_torchrun_template(const std::string& text);

// A template with all filled in but the time, which goes between each two of `pieces`.
struct LinePrefix {
  std::vector<std::string> pieces{""};

  bool has_time() const { return pieces.size() > 1; }
  void append_to(std::string* out, std::string_view time) const;
};

// REQUIRES: no unknown placeholder.
LinePrefix fill_prefix(const std::string& text, const PrefixFields& fields);

// "2026-01-31T23:59:59.123Z"
std::string timestamp(Millis since_1970);

}  // namespace dtrun::agent
