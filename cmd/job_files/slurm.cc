#include "cmd/job_files/slurm.h"

#include <algorithm>
#include <cctype>

#include "cmd/job_files/template.h"
#include "cmd/job_files/templates.h"
#include "cmd/options/values.h"

namespace dtrun::cmd {
namespace {

// Seconds before the end of the time limit at which Slurm signals the job, and the last of them, in which the
// agents end after their workers.
constexpr int kWarning = 300, kGraceAfterShutdown = 10;

// In a line of #SBATCH, which knows neither all of a shell's quotes nor line breaks.
std::string plain(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  return name;
}

}  // namespace

std::string slurm_script(const SlurmJob& job) {
  const bool elastic = job.nodes.min < job.nodes.max;
  const std::string least = std::to_string(job.nodes.min), most = std::to_string(job.nodes.max);
  std::string options = "--max_restarts " + std::to_string(job.max_restarts) + " --shutdown_timeout " +
                        std::to_string(kWarning - kGraceAfterShutdown);
  if (elastic) options = "--nnodes " + least + ":" + most + " " + options;
  if (job.gpus > 0) options += " --nproc_per_node gpu";
  // An elastic job goes on with fewer nodes. Slurm ends the rest of any other job, and queues it anew.
  const std::string no_kill = elastic ? "#SBATCH --no-kill" : "";
  const std::string step = elastic ? "--no-kill --kill-on-bad-exit=0" : "--kill-on-bad-exit=0";
  std::string config = shell_word(job.config);
  for (const std::string& override : job.overrides) config += " " + shell_word(override);
  return fill_in(kSlurmTemplate, {{"name", plain(job.name)},
                                  {"warning", std::to_string(kWarning)},
                                  {"nodes", elastic ? least + "-" + most : most},
                                  {"gpus", job.gpus > 0 ? std::to_string(job.gpus) : ""},
                                  {"time", job.time},
                                  {"partition", job.partition},
                                  {"no_kill", no_kill},
                                  {"step", step},
                                  {"options", options},
                                  {"config", config}});
}

bool is_slurm_time(const std::string& text) {
  if (text == "UNLIMITED" || text == "INFINITE") return true;
  constexpr std::size_t kDigits = 9, kFields = 3;
  const std::size_t dash = text.find('-');
  std::size_t fields = 0;
  for (std::size_t at = 0, end = 0; end < text.size(); at = end + 1) {
    end = std::min(text.find_first_not_of("0123456789", at), text.size());
    if (end == at || end - at > kDigits) return false;
    const bool days = end == dash && at == 0;
    if (!days && ++fields > kFields) return false;
    if (end < text.size() && (end + 1 == text.size() || !(days || text[end] == ':'))) return false;
  }
  return fields > 0;
}

}  // namespace dtrun::cmd
