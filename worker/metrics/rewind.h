// Takes a metrics file back to the step from which its run goes on. Reads from the end and only as far as
// necessary: a long run's file may have gigabytes, and all ranks wait for rank 0.
#pragma once

#include <cstdint>

namespace dtrun::worker {

struct Rewound {
  int error = 0;           // errno of a failure, after which the file is unchanged or shorter
  bool trained = false;    // a line of training of the step itself is among the lines that stay
  bool evaluated = false;  // the same for a line of an evaluation
};

// Drops all lines behind the last one of a step before `resume_step`, except for lines of `resume_step`
// itself and lines that this program did not write (objects without a step). `fd`: open for reading and
// appending.
Rewound rewind_metrics(int fd, std::int64_t resume_step);

}  // namespace dtrun::worker
