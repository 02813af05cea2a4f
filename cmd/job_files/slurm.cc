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

// A line of #SBATCH knows neither all of a shell's quotes nor line breaks.
bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_'; }

std::string plain(std::string name) {
  for (char& c : name)
    if (!is_plain(c)) c = '-';
  return name;
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace

bool is_slurm_word(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return is_plain(c) || c == '-' || c == ','; });
}

std::string slurm_script(const SlurmJob& job) {
  const bool elastic = job.nodes.min < job.nodes.max;
  const std::string least = std::to_string(job.nodes.min), most = std::to_string(job.nodes.max);
  std::string options = "--max_restarts " + std::to_string(job.max_restarts) + " --shutdown_timeout " +
                        std::to_string(kWarning - kGraceAfterShutdown);
  if (elastic) options = "--nnodes " + least + ":" + most + " " + options;
  const bool counts = std::ranges::any_of(
      job.options, [](const std::string& word) { return word.starts_with("--nproc_per_node="); });
  if (job.gpus > 0 && !counts) options += " --nproc_per_node gpu";
  // An elastic job goes on with fewer nodes. Slurm ends the rest of any other job, and queues it anew.
  const std::string no_kill = elastic ? "#SBATCH --no-kill" : "";
  const std::string step = elastic ? "--no-kill --kill-on-bad-exit=0" : "--kill-on-bad-exit=0";
  return fill_in(kSlurmTemplate, {{"name", plain(job.name)},
                                  {"warning", std::to_string(kWarning)},
                                  {"nodes", elastic ? least + "-" + most : most},
                                  {"gpus", job.gpus > 0 ? std::to_string(job.gpus) : ""},
                                  {"time", job.time},
                                  {"partition", job.partition},
                                  {"no_kill", no_kill},
                                  {"step", step},
                                  {"command", options + shell_words(job.options) + shell_words(job.words)}});
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
