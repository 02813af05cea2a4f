#include "cmd/options/option_table.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace dtrun::cmd {
namespace {

constexpr char kJob[] = "The job";
constexpr char kProgram[] = "The program";
constexpr char kMeeting[] = "How nodes meet";
constexpr char kFailures[] = "Failures and the end";
constexpr char kOutput[] = "Output";
constexpr char kText[] = "Text";
constexpr char kAccepted[] = "Accepted because torchrun has them; without effect here";

constexpr OptionText kOptions[] = {
    {"standalone", true, "", "", kJob,
     "One node; the coordinator listens on a free loopback port [so if --nnodes is 1 and no endpoint is "
     "given]"},
    {"nnodes", false, "", "N|MIN:MAX", kJob, "Number of nodes, or its range [1]"},
    {"nproc_per_node", false, "", "N|auto|cpu|gpu", kJob,
     "Workers on this node; cpu: one per core, gpu: one per GPU, auto: gpu if there are any, else cpu [1]"},
    {"lanes", false, "", "N|auto", kJob,
     "Built-in trainer: microbatches that a worker runs at once; auto: its share of the cores [auto]"},
    {"node_rank", false, "", "N", kJob, "Rank of this node among the nodes [given by the coordinator]"},
    {"role", false, "", "NAME", kJob, "Name of the workers' role, shown before their output [default]"},
    {"dry_run", true, "", "", kJob, "Print the resolved plan as JSON and start nothing"},

    {"module", true, "m", "", kProgram, "Run the program as a Python module (python3 -u -m)"},
    {"no_python", true, "", "", kProgram, "Run the program itself, even if its name ends in .py"},
    {"run_path", true, "", "", kProgram, "Run the script with Python's runpy.run_path; it needs no .py"},
    {"virtual_local_rank", true, "", "", kProgram,
     "Each worker sees one GPU, as device 0: LOCAL_RANK is 0 and CUDA_VISIBLE_DEVICES its own GPU"},
    {"numa_binding", false, "", "node|socket|exclusive|core-complex", kProgram,
     "Bind each worker to the CPUs of a NUMA node (node), to all of a socket (socket), to its own share of a "
     "node's cores (exclusive), or to cores that share a last-level cache (core-complex)"},

    {"rdzv_endpoint", false, "", "HOST[:PORT]", kMeeting,
     "Where the coordinator is; the agent on that host starts it. Port [29400]"},
    {"rdzv_backend", false, "", "dtrun|c10d|static|env", kMeeting,
     "Who gives the ranks: the coordinator (dtrun, also called c10d); static: --node_rank; env: RANK, "
     "WORLD_SIZE, MASTER_ADDR and MASTER_PORT, for one worker [dtrun]"},
    {"rdzv_id", false, "", "ID", kMeeting, "Run id, the same on all nodes [none; on a single node: random]"},
    {"rdzv_conf", false, "", "K=V,...", kMeeting,
     "join_timeout=600, last_call_timeout=5, keep_alive_interval=5, keep_alive_max_attempt=3; read_timeout: "
     "how long a node goes on without its coordinator [30; join_timeout with `dtrun store`] (seconds); "
     "is_host=1 or 0: whether this node hosts the coordinator [if the endpoint is its own address]"},
    {"master_addr", false, "", "ADDR", kMeeting,
     "Instead of an endpoint, as in torchrun's static rendezvous: the host of node rank 0. The coordinator "
     "listens there on the port after --master_port"},
    {"master_port", false, "", "PORT", kMeeting,
     "MASTER_PORT of the workers, held for rank 0's program until it listens there [a free one]"},
    {"local_addr", false, "", "ADDR", kMeeting,
     "Address of this node for its peers [the one that reaches the coordinator]"},

    {"max_restarts", false, "", "N", kFailures, "Restarts after worker failures, for the whole job [0]"},
    {"no_restart_exit_codes", false, "", "N|N-M,...", kFailures,
     "Exit codes of a program that a restart would not cure; \"\": none. The built-in trainer has its own "
     "[2,64-78]"},
    {"shutdown_timeout", false, "", "SECONDS", kFailures,
     "Grace between SIGTERM and SIGKILL for workers [30]"},
    {"signals_to_handle", false, "", "NAME,...", kFailures,
     "Signals that end the job, beside SIGTERM, SIGINT, SIGHUP and SIGQUIT, which always do. SIGUSR1 and "
     "SIGUSR2 are passed on to the workers unless they are named here"},

    {"heartbeat_timeout", false, "", "SECONDS", kFailures,
     "A worker that reports progress and has stopped to for this long hangs: its stacks are written to its "
     "log directory (else to the console), and it is killed and counts as failed. The built-in trainer "
     "always reports; another program does by touching the file $DTRUN_HEARTBEAT_FILE, and is held to it "
     "from the first time on [never]"},
    {"stall_timeout", false, "", "SECONDS", kFailures,
     "The same for programs that do not report: when no worker of the node wrote anything or used the CPU "
     "for this long. Make it longer than any wait for another node [never]"},

    {"log_dir", false, "", "DIR", kOutput,
     "Also write workers' output to DIR/RUN_ID/attempt_G/RANK/{stdout,stderr}.log [console only]"},
    {"redirects", false, "r", "N|RANK:N,...", kOutput,
     "Streams that go to a file only: 0 none, 1 stdout, 2 stderr, 3 both; for all workers or by local rank"},
    {"tee", false, "t", "N|RANK:N,...", kOutput,
     "Streams that go to a file and the console, in the same form [3 with --log_dir, unless --redirects is "
     "given]"},
    {"local_ranks_filter", false, "", "RANK,...", kOutput,
     "Only these local ranks are shown on the console; files are not affected [all]"},
    {"duplicate_stdout_filters", false, "", "WORD,...", kOutput,
     "Lines of stdout with one of these words also go to attempt_G/filtered_stdout.log, all ranks in one "
     "file; \",,\" is a comma. For streams that --tee names"},
    {"duplicate_stderr_filters", false, "", "WORD,...", kOutput, "The same for stderr"},
    {"log_prefix", false, "", "TEXT", kOutput,
     "Before each line on the console; {role}, {rank}, {local_rank}, {host} and {time} are filled in; \"\": "
     "nothing [\"[{role}:{rank}]\"]"},
    {"log_line_prefix_template", false, "", "TEXT", kOutput,
     "torchrun's spelling of it: ${role_name}, ${rank}, ${local_rank}, ${hostname}; also read from "
     "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {"log_timestamps", true, "", "", kOutput,
     "Begin each line with the time (UTC), on the console and in files"},
    {"log_max_size", false, "", "SIZE", kOutput,
     "When a log file reaches SIZE (500K, 100M, 2G), it becomes stdout.log.1; the 5 newest of these are kept "
     "[no limit]"},

    {"monitor_interval", false, "", "SECONDS", kAccepted, "dtrun waits on events, it does not poll workers"},
    {"start_method", false, "", "spawn|fork|forkserver", kAccepted,
     "dtrun always starts programs, not Python functions"},
    {"event_log_handler", false, "", "NAME", kAccepted, "Events are in DIR/RUN_ID/events.jsonl of --log_dir"},
    {"logs_specs", false, "", "NAME", kAccepted, "Names a Python plug-in; see the options under Output"},

    {"print_completion", false, "", "bash|zsh|tcsh", kText,
     "Print a script with which the shell completes dtrun's command line, and exit: source <(dtrun "
     "--print_completion bash)"},
};

constexpr std::string_view kOnlyOurs[] = {
    "lanes",         "dry_run",    "no_restart_exit_codes", "heartbeat_timeout",
    "stall_timeout", "log_prefix", "log_timestamps",        "log_max_size"};

}  // namespace

std::span<const OptionText> option_table() { return kOptions; }

bool is_torchruns(std::string_view name) {
  return std::find(std::begin(kOnlyOurs), std::end(kOnlyOurs), name) == std::end(kOnlyOurs);
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string in_capitals(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace dtrun::cmd
