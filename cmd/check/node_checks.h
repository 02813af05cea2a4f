// Checks for everything that would stop a job on this node as soon as it began, before anything starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/core/job_spec.h"
#include "cmd/options/given.h"
#include "proto/core/status.h"

namespace dtrun::cmd {

// The facts on this node's processor that the built-in trainer's results depend on, as the worker's program
// tells them, which takes some 50 ms. Empty for workers that compute on GPUs, for a config that allows other
// processors, and if the program does not answer.
std::string processor_of(const JobSpec& spec);

// Fills in what the others of several nodes must know of this one: its processor, and for how few workers of
// the job its memory is enough. Before the node joins them, behind check_node().
void find_facts_for_others(JobSpec* spec);

// Whether another process writes the output directory, if several nodes may. Before the node joins the
// others.
void find_writer(JobSpec* spec);

// The worker's program is there, the data fits the model, and there is enough memory. On a single node also:
// the output directory can be written, no other process writes it (waits a while for its end), and the run
// may go on from its contents.
Status check_node(const JobSpec& spec, const Notice& notice);

// The program can be found and read, and output can be written: for a node whose user is elsewhere and would
// see an error only once the others have started. EX_NOINPUT, or EX_CANTCREAT for output.
Status check_files(const JobSpec& spec, const std::vector<std::string>& program);

// The nearest folder that exists: a run makes what is missing.
std::filesystem::path nearest_folder(const std::filesystem::path& directory);
// Bytes of /dev/shm; -1: not known.
std::int64_t size_of_shm();
// A notice for people if /dev/shm is small, and several workers of this node may share memory there:
// Python's, with its data loaders, and those with GPUs, with NCCL. Else empty.
std::string small_shm_notice(const JobSpec& spec, std::int64_t shm_size);

}  // namespace dtrun::cmd
