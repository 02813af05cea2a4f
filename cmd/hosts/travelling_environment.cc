#include "cmd/hosts/travelling_environment.h"

#include <algorithm>
#include <array>
#include <set>

namespace dtrun::cmd {
namespace {

// The job's key itself: nothing sends it.
constexpr std::string_view kJobKey = "DTRUN_KEY";

// Names and patterns of variables that stay here unless a rule sends them, grouped by the system they belong
// to.
constexpr std::string_view kStayingPatterns[] = {
    // the user there, who may be another, and the login's shell
    "HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL", "SHLVL", "_", "PWD", "OLDPWD", "SUDO_*",
    "KRB5CCNAME",
    // the terminal
    "TERM", "TERMCAP", "TERM_*", "COLORTERM", "COLUMNS", "LINES", "STY", "WINDOW", "TMUX", "TMUX_*",
    "GPG_TTY", "GPG_AGENT_INFO", "VTE_*", "KONSOLE_*", "ITERM_*", "VSCODE_*",
    // the desktop and the login session
    "DISPLAY", "XAUTHORITY", "WAYLAND_*", "WINDOWID", "WINDOWPATH", "DESKTOP_SESSION", "SESSION_MANAGER",
    "GNOME_*", "KDE_*", "SSH_*", "XDG_*", "DBUS_*",
    // systemd's variables for one process
    "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*", "MANAGERPID", "MAINPID", "NOTIFY_SOCKET", "LISTEN_FDS",
    "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_*", "MEMORY_PRESSURE_*", "CREDENTIALS_DIRECTORY",
    "RUNTIME_DIRECTORY",
    // this host
    "HOSTNAME", "HOST", "HOSTTYPE", "REMOTEHOST", "TMPDIR", "TMP", "TEMP", "TEMPDIR", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "JOB_COMPLETION_INDEX",
    // the batch system and the launcher around this process
    "SLURM_*", "SLURMD_*", "SRUN_*", "SALLOC_*", "SBATCH_*", "PBS_*", "LSB_*", "FLUX_*", "PMI_*", "PMIX_*",
    "PMI2_*", "OMPI_*", "PRTE_*", "HYDRA_*", "HYDI_*", "PALS_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    // a job of dtrun or torchrun around this process, and the options that are for this host alone
    "DTRUN_RUN_ID", "DTRUN_GENERATION", "DTRUN_NODE", "DTRUN_CONTROL_FD", "DTRUN_RESTART_COUNT",
    "DTRUN_HEARTBEAT_FILE", "DTRUN_PROCESS_TAG", "DTRUN_KEY_FILE", "DTRUN_SSH", "DTRUN_NODE_RANK",
    "PET_NODE_RANK", "DTRUN_LOCAL_ADDR", "PET_LOCAL_ADDR", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK",
    "TORCHELASTIC_*"};

constexpr std::array<std::string_view, 9> kSecretWords = {"KEY",  "TOKEN",   "SECRET", "PASSW", "PASSPHRASE",
                                                          "CRED", "PRIVATE", "COOKIE", "AUTH"};

Status wrong_rule(int exit_code, const std::string& message) { return {exit_code, message}; }

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// `pattern` with * (any characters) and ? (one), the whole of `text`. Linear but for the last *.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = pattern.npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.substr(p).find_first_not_of('*') == pattern.npos;
}

bool stays_by_itself(std::string_view name) {
  return std::ranges::any_of(kStayingPatterns, [&](auto pattern) { return matches(pattern, name); });
}

// The last rule about `name`; null: none.
const EnvironmentRule* rule_of(std::string_view name, const std::vector<EnvironmentRule>& rules) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    const bool hit = rule->kind == EnvironmentRule::kStay ? matches(rule->name, name) : rule->name == name;
    if (hit) return &*rule;
  }
  return nullptr;
}

Status check_name(std::string_view name, int exit_code) {
  const auto no_name = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; };
  if (name.empty() || std::ranges::any_of(name, no_name)) {
    return wrong_rule(exit_code, "expected NAME or NAME=VALUE, with no spaces in the name");
  }
  if (name == kJobKey)
    return wrong_rule(exit_code, std::string(kJobKey) + " goes to the other hosts by itself");
  return {};
}

Result<EnvironmentRule> parse_variable(std::string_view text, int exit_code) {
  const auto name = name_of(text);
  if (const auto status = check_name(name, exit_code); !status.ok()) return status;
  if (name.size() == text.size()) return EnvironmentRule{EnvironmentRule::kSend, std::string(name)};
  return EnvironmentRule{EnvironmentRule::kSet, std::string(name), std::string(text.substr(name.size() + 1))};
}

std::string entry_of(const EnvironmentRule& rule) { return rule.name + "=" + rule.value; }

// The first entry of each name, as getenv sees it; entries that are no "NAME=VALUE" are left out.
std::vector<std::string_view> variables_of(const std::vector<std::string>& own) {
  std::vector<std::string_view> variables;
  std::set<std::string_view> seen;
  for (const std::string_view entry : own) {
    const auto name = name_of(entry);
    if (!name.empty() && name.size() < entry.size() && seen.insert(name).second) variables.push_back(entry);
  }
  return variables;
}

}  // namespace

Result<EnvironmentRule> parse_environment_rule(const std::string& text) {
  if (!text.starts_with('^')) {
    const auto rule = parse_variable(text, kExitUsage);
    return rule.ok() ? rule : rule.status().within("-x");
  }
  if (text.size() == 1)
    return wrong_rule(kExitUsage, "-x: expected a pattern of names after '^', like ^WANDB_*");
  return EnvironmentRule{EnvironmentRule::kStay, text.substr(1)};
}

Result<std::vector<EnvironmentRule>> parse_environment_file(std::string_view text, const std::string& path) {
  std::vector<EnvironmentRule> rules;
  for (int number = 1; !text.empty(); ++number) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto where = path + ":" + std::to_string(number);
    if (line.find('\0') != line.npos) return wrong_rule(kExitConfig, where + ": a zero byte");
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with("export ")) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t", 6), line.size()));
    }
    const auto rule = parse_variable(line, kExitConfig);
    if (!rule.ok()) return rule.status().within(where);
    rules.push_back(rule.value());
  }
  return rules;
}

std::vector<std::string> travelling_environment(const std::vector<std::string>& own,
                                                const std::vector<EnvironmentRule>& rules) {
  std::vector<std::string> travelling;
  std::set<std::string_view> decided = {kJobKey};
  for (const auto entry : variables_of(own)) {
    const auto name = name_of(entry);
    if (!decided.insert(name).second) continue;
    const auto* rule = rule_of(name, rules);
    if (rule == nullptr ? stays_by_itself(name) : rule->kind == EnvironmentRule::kStay) continue;
    const bool is_set = rule != nullptr && rule->kind == EnvironmentRule::kSet;
    travelling.push_back(is_set ? entry_of(*rule) : std::string(entry));
  }
  for (const auto& rule : rules) {
    if (rule.kind != EnvironmentRule::kSet || !decided.insert(rule.name).second) continue;
    const auto* last = rule_of(rule.name, rules);
    if (last->kind == EnvironmentRule::kSet) travelling.push_back(entry_of(*last));
  }
  return travelling;
}

std::vector<std::string> not_set_here(const std::vector<std::string>& own,
                                      const std::vector<EnvironmentRule>& rules) {
  std::set<std::string_view> known;
  for (const auto entry : variables_of(own)) known.insert(name_of(entry));
  std::vector<std::string> missing;
  for (const auto& rule : rules) {
    if (rule_of(rule.name, rules)->kind != EnvironmentRule::kSend) continue;
    if (known.insert(rule.name).second) missing.push_back(rule.name);
  }
  return missing;
}

std::string masked(const std::string& entry) {
  std::string name(name_of(entry));
  if (name.size() == entry.size()) return entry;
  const auto value = std::string_view(entry).substr(name.size() + 1);
  std::string capitals = name;
  for (auto& c : capitals) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  const auto scheme = value.find("://");
  const bool has_login = scheme != value.npos && value.find('@', scheme) != value.npos;
  const bool is_secret = has_login || std::ranges::any_of(kSecretWords, [&](auto word) {
                           return capitals.find(word) != capitals.npos;
                         });
  return is_secret ? name + "=***" : entry;
}

}  // namespace dtrun::cmd
