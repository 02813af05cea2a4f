// The whole of dtrun-worker, as a function: a test's program may do something first.
#pragma once

namespace dtrun::worker {

struct CudaLaunches;

// The arguments are main()'s. Returns the exit code, or ends the process.
int worker_main(int argc, char** argv);
// Likewise, with a GPU that launches its work as a test wants it.
int worker_main(int argc, char** argv, const CudaLaunches& launches);

}  // namespace dtrun::worker
