// Text for people about how a job ended. Pure; agent/core/supervisor/decide.cc decides when it is shown.
// agent/report_file.h writes the same for programs.
#pragma once

#include <string>
#include <vector>

#include "proto/core/colour.h"
#include "rendezvous/core/messages.h"

namespace dtrun::agent {

struct ReportStyle {
  bool terminal = false;        // a blank line keeps the report apart from other text
  Palette palette = Palette();  // the heading is an error
};

// The first failure and its last words, restarts used, and the workers that only followed. Several lines
// without a final newline; `file`, if not empty, is named as the place to read more.
std::string failure_report(const rendezvous::JobEnd& end, int max_restarts, const std::string& file = "",
                           ReportStyle style = {});

// "SIGTERM", "signal 42"
std::string describe_signal(int number);

}  // namespace dtrun::agent
