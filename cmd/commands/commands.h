// Every subcommand: each stands in a file of its own, command_table.cc names them all.
#pragma once

#include "cmd/options/command.h"

namespace dtrun::cmd {

extern const Command kAgentCommand;       // what a launcher on another host starts over ssh
extern const Command kAttachCommand;      // back to a job that was started with --detach
extern const Command kCompletionCommand;  // a script with which a shell completes dtrun's command line
extern const Command kDoctorCommand;      // whether nodes are fit for a job
extern const Command kExportCommand;      // a trained model as a directory that transformers loads
extern const Command kGpusCommand;        // the GPUs of this machine, and those that a program would see
extern const Command kHelpCommand;        // the manual's pages
extern const Command kKeyCommand;         // the key of a job
extern const Command kKubernetesCommand;  // what runs a job on Kubernetes, for kubectl apply
extern const Command kLogsCommand;        // what such a job has said
extern const Command kPrepareCommand;     // text to token shards
extern const Command kProfileCommand;     // where the time of a job's steps goes
extern const Command kReportCommand;      // a page of a run, from the files that it left
extern const Command kSampleCommand;      // text from a trained model
extern const Command kSlurmCommand;       // a script that runs a job under Slurm, for sbatch
extern const Command kStatusCommand;      // which nodes take part in a run, and what they do
extern const Command kStopCommand;        // the end of a job that was started with --detach
extern const Command kStoreCommand;       // coordinator and store on a host of their own
extern const Command kTraceCommand;       // what all ranks of a training do, on one clock

}  // namespace dtrun::cmd
