// The launcher's options as data: parsing, help, man page, docs and completion read this table, and cmd/plan
// gives the values their meaning. A name that is not here does not compile there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "cmd/options/given.h"
#include "cmd/options/option_entry.h"

namespace dtrun::cmd {

namespace group {
inline constexpr char kJob[] = "The job";
inline constexpr char kProgram[] = "The program";
inline constexpr char kMeeting[] = "How nodes meet";
inline constexpr char kHosts[] = "Many hosts over ssh";
inline constexpr char kFailures[] = "Failures and the end";
inline constexpr char kOutput[] = "Output";
inline constexpr char kAccepted[] = "Accepted because torchrun has them; without effect here";
}  // namespace group

inline constexpr OptionEntry kOptions[] = {
    {.name = "standalone",
     .help = "Single node; its coordinator listens on a Unix socket, not a port [if --nnodes is 1 and no "
             "endpoint is given]",
     .group = group::kJob,
     .in_torchrun = true},
    {.name = "nnodes",
     .placeholder = "N|MIN:MAX",
     .help = "Number of nodes or its range [from the cluster (docs/nodes.md), else 1]",
     .group = group::kJob,
     .in_torchrun = true,
     .common = true},
    {.name = "nproc_per_node",
     .placeholder = "N|auto|cpu|gpu",
     .help = "Workers on this node; cpu: one per core, gpu: one per GPU, auto: gpu if there are any, else "
             "cpu [1; on a cluster one per GPU, if there are any]",
     .group = group::kJob,
     .in_torchrun = true,
     .common = true},
    {.name = "lanes",
     .placeholder = "N|auto",
     .help = "Built-in trainer: microbatches that a worker runs at once; auto: its share of the cores [auto]",
     .group = group::kJob},
    {.name = "recovery",
     .placeholder = "memory|checkpoint",
     .help = "After a failure, surviving workers keep their training state (memory; a script uses the "
             "dtrun package for it), or all restart, from the newest checkpoint (checkpoint) "
             "[memory for the built-in trainer, else checkpoint]",
     .group = group::kJob},
    {.name = "node_rank",
     .placeholder = "N",
     .help = "Rank of this node among the nodes [the cluster's, else given by the coordinator]",
     .group = group::kJob,
     .in_torchrun = true},
    {.name = "topology",
     .placeholder = "PLACE",
     .help = "Place of this node in the network, outermost level first, such as pod2.rack7: nodes of one "
             "place get neighbouring ranks, which exchange most [$SLURM_TOPOLOGY_ADDR, else unknown]",
     .group = group::kJob},
    {.name = "role",
     .placeholder = "NAME",
     .help = "Role name of the workers, shown before their output [default]",
     .group = group::kJob,
     .in_torchrun = true},
    {.name = "dry_run",
     .help = "Print the plan as JSON and start nothing",
     .group = group::kJob,
     .common = true},

    {.name = "module",
     .short_name = "m",
     .help = "Run the program as a Python module (python3 -u -m)",
     .group = group::kProgram,
     .in_torchrun = true},
    {.name = "no_python",
     .help = "Run the program itself, even if its name ends in .py",
     .group = group::kProgram,
     .in_torchrun = true},
    {.name = "run_path",
     .help = "Run the script with Python's runpy.run_path; it needs no .py",
     .group = group::kProgram,
     .in_torchrun = true},
    {.name = "virtual_local_rank",
     .help = "Each worker sees one GPU, as device 0: LOCAL_RANK is 0 and CUDA_VISIBLE_DEVICES its own GPU",
     .group = group::kProgram,
     .in_torchrun = true},
    {.name = "numa_binding",
     .placeholder = "node|socket|exclusive|core-complex",
     .help = "Bind each worker to the CPUs of a NUMA node (node), to all of a socket (socket), to its own "
             "share of a "
             "node's cores (exclusive), or to cores that share a last-level cache (core-complex)",
     .group = group::kProgram,
     .in_torchrun = true},

    {.name = "rdzv_endpoint",
     .placeholder = "HOST[:PORT]",
     .help = "Host of the coordinator; the agent there starts it. Port 29400 [the first node of the "
             "cluster's job]. HOST,HOST,HOST: candidates for failover",
     .group = group::kMeeting,
     .in_torchrun = true,
     .common = true},
    {.name = "rdzv_backend",
     .placeholder = "dtrun|c10d|static|env",
     .help = "Source of the ranks: the coordinator (dtrun, also called c10d); static: --node_rank; env: "
             "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, for one worker [dtrun]",
     .group = group::kMeeting,
     .in_torchrun = true},
    {.name = "rdzv_id",
     .placeholder = "ID",
     .help = "Run id, the same on all nodes [the cluster's, else none; on a single node: random]",
     .group = group::kMeeting,
     .in_torchrun = true},
    {.name = "rdzv_conf",
     .placeholder = "K=V,...",
     .help = "join_timeout=600, last_call_timeout=5, keep_alive_interval=5, keep_alive_max_attempt=3; "
             "read_timeout: how long a node waits for its coordinator [30; join_timeout of a range, with "
             "`dtrun store`] (seconds); is_host=1 or 0: whether this node hosts the coordinator [if the "
             "endpoint is its own address]; failover=always or never: whether the second of two hosts "
             "takes over [never]",
     .group = group::kMeeting,
     .in_torchrun = true},
    {.name = "key_file",
     .placeholder = "FILE",
     .help = "The key to join with, from `dtrun key`, the same on all nodes; it encrypts, too [$DTRUN_KEY, "
             "the key itself; $DTRUN_KEY_FD, a descriptor to read it from; this user's key, "
             "~/.config/dtrun/key, made when it is first needed]",
     .group = group::kMeeting,
     .is_path = true},
    {.name = "insecure",
     .help = "No key and plain text, on all nodes. Anybody who can reach the endpoint may join",
     .group = group::kMeeting},
    {.name = "master_addr",
     .placeholder = "ADDR",
     .help = "Instead of an endpoint, as in torchrun's static rendezvous: the host of node rank 0. The "
             "coordinator "
             "listens there on the port after --master_port",
     .group = group::kMeeting,
     .in_torchrun = true},
    {.name = "master_port",
     .placeholder = "PORT",
     .help = "MASTER_PORT of the workers, held for rank 0's program until it listens there [a free one]",
     .group = group::kMeeting,
     .in_torchrun = true},
    {.name = "local_addr",
     .placeholder = "ADDR",
     .help = "Address of this node for its peers [the one that reaches the coordinator]",
     .group = group::kMeeting,
     .in_torchrun = true},

    {.name = "http_port",
     .placeholder = "N|auto|off",
     .help = "Port of the page of the job, on the coordinator's host: what the job does, for a browser there "
             "(docs/observe.md). auto: any free one [auto]",
     .group = group::kMeeting},
    {.name = "http_bind",
     .placeholder = "ADDRESS",
     .help =
         "Show the page at this address of the coordinator's host too, by HTTPS, to who has the link that "
         "`dtrun status --open` prints. Needs a key [127.0.0.1]",
     .group = group::kMeeting},

    {.name = "hostfile",
     .placeholder = "FILE",
     .help = "Run the job on the hosts of FILE, over ssh; a line each: `node1`, `node1 slots=4`, "
             "`node1:4`, `ada@node[2-5]`, as in hostfiles of mpirun and DeepSpeed; slots are the host's "
             "workers, if --nproc_per_node is not given. Nothing but ssh is needed there",
     .group = group::kHosts,
     .common = true,
     .is_path = true},
    {.name = "hosts",
     .short_name = "H",
     .placeholder = "HOST,...",
     .help = "The same as a list: node[0-3],ada@node4:2",
     .group = group::kHosts},
    {.name = "include",
     .placeholder = "HOST[:GPU,...]@...",
     .help = "Use only these hosts, or a host's GPUs: node1@node2:0,2",
     .group = group::kHosts},
    {.name = "exclude", .placeholder = "HOST[:GPU,...]@...", .help = "Omit these", .group = group::kHosts},
    {.name = "check",
     .help = "Start nothing; report whether the job could run on each host, and whether the hosts reach "
             "each other",
     .group = group::kHosts},
    {.name = "detach",
     .help = "Run the job in the background; `dtrun attach`, `dtrun stop` and `dtrun logs` find it again",
     .group = group::kHosts},
    {.name = "chdir",
     .placeholder = "DIR",
     .help = "Working directory on every host [the current one]",
     .group = group::kHosts},
    {.name = "export",
     .short_name = "x",
     .placeholder = "NAME[=VALUE]",
     .help = "Send this variable to the hosts, or set it there; ^PATTERN keeps variables here. May be "
             "repeated [all variables are sent but those of this session or host, such as HOME, SSH_*, "
             "SLURM_*]",
     .group = group::kHosts,
     .repeats = true},
    {.name = "env_file",
     .placeholder = "FILE",
     .help = "Variables for the hosts, a NAME=VALUE per line, as in DeepSpeed's .deepspeed_env",
     .group = group::kHosts,
     .is_path = true},
    {.name = "ssh",
     .placeholder = "COMMAND",
     .help = "Remote shell, called with a host's name and the command to run: `ssh -p 2222`, `docker "
             "exec -i` [ssh]",
     .group = group::kHosts},
    {.name = "ssh_timeout",
     .placeholder = "SECONDS",
     .help = "Time for a host's login and shell, until dtrun answers there [30]",
     .group = group::kHosts},
    {.name = "accept_new_host_keys",
     .help = "Trust hosts that ssh does not know yet, and remember their keys. A changed key is never "
             "accepted",
     .group = group::kHosts},

    {.name = "max_restarts",
     .placeholder = "N",
     .help = "Job restarts on failure [0]",
     .group = group::kFailures,
     .in_torchrun = true,
     .common = true},
    {.name = "crash_loop_limit",
     .placeholder = "N",
     .help = "End the job after N similar failures in a row, each soon after the start, even if restarts "
             "are left [0: it only restarts more slowly]",
     .group = group::kFailures},
    {.name = "no_restart_exit_codes",
     .placeholder = "N|N-M,...",
     .help = "Exit codes of a program that prevent a restart; \"\": none. The built-in trainer has its own "
             "[2,64-78]",
     .group = group::kFailures},
    {.name = "shutdown_timeout",
     .placeholder = "SECONDS",
     .help = "Grace period between SIGTERM and SIGKILL for workers and processes they leave behind [30]",
     .group = group::kFailures,
     .in_torchrun = true},
    {.name = "signals_to_handle",
     .placeholder = "NAME,...",
     .help =
         "Signals that end the job, beside SIGTERM, SIGINT, SIGHUP and SIGQUIT, which always do. SIGUSR1 and "
         "SIGUSR2 are passed on to the workers unless they are named here",
     .group = group::kFailures,
     .in_torchrun = true},
    {.name = "heartbeat_timeout",
     .placeholder = "SECONDS",
     .help = "Time without a heartbeat after which a worker counts as hung: all workers' stack locations "
             "are reported, their stacks are written to their log directories, and it is killed and "
             "counts as failed. The built-in trainer always sends heartbeats; another program does by "
             "touching the file $DTRUN_HEARTBEAT_FILE, and must from the first one on [never]",
     .group = group::kFailures},
    {.name = "stall_timeout",
     .placeholder = "SECONDS",
     .help = "The same for programs without heartbeats: time in which no worker of the node wrote "
             "anything or used the CPU. Make it longer than any wait: for another node, a file system, a "
             "download, a person [never]",
     .group = group::kFailures},
    {.name = "notice_after",
     .placeholder = "SECONDS",
     .help =
         "Time after which workers that get nothing done are told of, and not ended; 0: never. By default "
         "300 without a sign of life from one that gave them every few seconds, 600 without output, CPU "
         "time, input and output of all the node's workers, and always at most 30 of waiting for another "
         "rank of the built-in trainer [300 or 600]",
     .group = group::kFailures},

    {.name = "log_dir",
     .placeholder = "DIR",
     .help = "Also write workers' output to files in DIR; a worker's are "
             "RUN_ID/attempt_G/RANK/{stdout,stderr}.log there [console only]",
     .group = group::kOutput,
     .in_torchrun = true,
     .common = true,
     .is_path = true},
    {.name = "redirects",
     .short_name = "r",
     .placeholder = "N|RANK:N,...",
     .help = "Streams written only to a file: 0 none, 1 stdout, 2 stderr, 3 both; for all workers or by "
             "local rank",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "tee",
     .short_name = "t",
     .placeholder = "N|RANK:N,...",
     .help = "Streams written to a file and the console, same form [3 with --log_dir, unless --redirects "
             "is given]",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "local_ranks_filter",
     .placeholder = "RANK,...",
     .help = "Local ranks to show on the console; files are not affected [all]",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "duplicate_stdout_filters",
     .placeholder = "WORD,...",
     .help =
         "Lines of stdout with one of these words also go to attempt_G/filtered_stdout.log, all ranks in one "
         "file; \",,\" is a comma. For streams that --tee names",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "duplicate_stderr_filters",
     .placeholder = "WORD,...",
     .help = "The same for stderr",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "log_prefix",
     .placeholder = "TEXT",
     .help = "Prefix of lines on the console; {role}, {rank}, {local_rank}, {host} and {time} are filled "
             "in; \"\": none [\"[{role}:{rank}]\"]",
     .group = group::kOutput},
    {.name = "log_line_prefix_template",
     .placeholder = "TEXT",
     .help = "The same, as in torchrun: ${role_name}, ${rank}, ${local_rank}, ${hostname}; also read "
             "from TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
     .group = group::kOutput,
     .in_torchrun = true},
    {.name = "log_timestamps",
     .help = "Begin each line with the time (UTC), on the console and in files",
     .group = group::kOutput},
    {.name = "log_max_size",
     .placeholder = "SIZE",
     .help = "Size (500K, 100M, 2G) at which a log file is rotated to stdout.log.1; the 5 newest are "
             "kept [no limit]",
     .group = group::kOutput},

    {.name = "on_event",
     .placeholder = "COMMAND",
     .help =
         "On the node of rank 0: hand this shell command each event that people want to hear of (a start or "
         "restart, a hang, nodes that come and go, the end) as a JSON line on its standard input. It has 10 "
         "s, "
         "and cannot disturb the job",
     .group = group::kOutput},
    {.name = "progress",
     .placeholder = "auto|bar|plain|json|none",
     .help = "Built-in trainer: progress display. bar: a bar on a terminal, plain elsewhere, to standard "
             "error; plain: a line every 5 seconds, to standard error; json: an object per line (step, "
             "loss and so on, see docs/status.md), to standard output; none: no display [auto, which is "
             "bar]",
     .group = group::kOutput},

    {.name = "monitor_interval",
     .placeholder = "SECONDS",
     .help = "dtrun waits for events and polls no workers",
     .group = group::kAccepted,
     .in_torchrun = true},
    {.name = "start_method",
     .placeholder = "spawn|fork|forkserver",
     .help = "dtrun always starts programs, not Python functions",
     .group = group::kAccepted,
     .in_torchrun = true},
    {.name = "event_log_handler",
     .placeholder = "NAME",
     .help = "Events are in DIR/RUN_ID/events.jsonl of --log_dir",
     .group = group::kAccepted,
     .in_torchrun = true},
    {.name = "logs_specs",
     .placeholder = "NAME",
     .help = "Names a Python plug-in; see the options under Output",
     .group = group::kAccepted,
     .in_torchrun = true},

    {.name = "print_completion",
     .placeholder = "bash|zsh|fish|tcsh",
     .help = "Print a script with which the shell completes dtrun's command line, and exit: source <(dtrun "
             "--print_completion bash)",
     .group = kTextGroup,
     .in_torchrun = true,
     .asks_for_text = true},
    kColorOption,
    kHelpOption,
    {.name = "version", .help = "Print the version and exit", .group = kTextGroup, .asks_for_text = true},
};

using OptionName = NameIn<kOptions>;

template <std::size_t Size>
struct Literal {
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a literal among a template's arguments
  consteval Literal(const char (&literal)[Size]) { std::ranges::copy(literal, text); }
  char text[Size];
};

// The help of the launcher's option up to its default, then this one in brackets.
template <Literal Name, Literal Default>
struct HelpWithDefault {
  static constexpr std::string_view kHelp = OptionName(Name.text).entry().help;
  static constexpr std::string_view kBefore = kHelp.substr(0, kHelp.rfind(" ["));
  static constexpr auto kText = [] {
    std::array<char, kBefore.size() + sizeof Default.text + 3> text{};
    char* end = std::ranges::copy(kBefore, text.data()).out;
    end = std::ranges::copy(std::string_view(" ["), end).out;
    end = std::ranges::copy(std::string_view(Default.text), end).out;
    *end = ']';
    return text;
  }();
};

// The launcher's option as a subcommand takes it: with the same words, and a default of its own.
template <Literal Name, Literal Default>
inline constexpr OptionEntry kOptionOfLauncher{.name = OptionName(Name.text).text(),
                                               .placeholder = OptionName(Name.text).entry().placeholder,
                                               .help = HelpWithDefault<Name, Default>::kText.data(),
                                               .is_path = OptionName(Name.text).entry().is_path};

// Every option is also read from the variable of its name behind each of these; the first that is set wins.
inline constexpr const char* kVariablePrefixes[] = {"DTRUN_", "PET_"};

std::string with_dashes(std::string name);
std::string in_capitals(std::string name);

}  // namespace dtrun::cmd
