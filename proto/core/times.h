// Times that dtrun waits for by itself and no option sets. Their users get them as settings, so that a test
// of what happens then need not last as long.
#pragma once

#include <chrono>

namespace dtrun {

struct Times {
  using Duration = std::chrono::milliseconds;

  // A launcher and an agent on another host that hear nothing from each other for this long are parted.
  Duration launcher_silence{60000};
  // A host whose name is unknown for so long is none: names of starting containers appear late.
  Duration unknown_name{15000};
  // A coordinator answers a Join within a millisecond, but ten thousand at once take it some seconds.
  Duration answer{10000};
  // A connection to a coordinator with a key: from its arrival to its TLS hello, and from the beginning of
  // its handshake to its first call.
  Duration hello{5000}, first_call{5500};
  // Workers that were told to leave a generation at once only wait for the microbatch in hand; those of units
  // for the gradients of the step in hand, since they leave it together.
  Duration pause{10000};
  // For a coordinator that an agent hosted: it went down with that node's workers, and only a new agent there
  // would bring it back.
  Duration without_coordinator{30000};
  // A store that is started again is back by then, and knows its runs. An agent's coordinator does not come
  // back.
  Duration until_gone{10000};
  // At a job's end: for a reader of its output, or a file system, that takes nothing. A person who has
  // stopped the terminal sees that the job is over by then.
  Duration flush{5000};
};

}  // namespace dtrun
