// The whole of dtrun-worker, as a function: a test's program may do something first.
#pragma once

namespace dtrun::worker {

// The arguments are main()'s. Returns the exit code, or ends the process.
int worker_main(int argc, char** argv);

}  // namespace dtrun::worker
