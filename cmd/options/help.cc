#include "cmd/options/help.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "cmd/options/option_table.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kNarrowest = 60, kWidest = 110;

struct Row {
  const char* left;
  const char* right;
};

constexpr Row kUses[] = {
    {"dtrun [options] CONFIG.json [key=value ...]",
     "The built-in trainer; key=value overrides a config entry"},
    {"dtrun [options] SCRIPT.py [args...]", "python3 -u SCRIPT.py on every worker"},
    {"dtrun [options] -m MODULE [args...]", "python3 -u -m MODULE on every worker"},
    {"dtrun [options] -- PROGRAM [args...]", "Any program on every worker"},
    {"dtrun store [--bind ADDR] [--port N]", "Coordinator and store alone, on a host of their own"},
    {"dtrun status [--rdzv_endpoint E] [--json]", "Who is where, doing what"},
};

constexpr char kSources[] =
    "Every option is also read from DTRUN_<NAME>, then from PET_<NAME>; --nproc_per_node, --nnodes, --lanes, "
    "--max_restarts and --log_dir then from the config's \"launch\". Both spellings work (--nproc_per_node, "
    "--nproc-per-node), and so does the beginning of a name that "
    "fits one option only (--nproc 2).";

constexpr const char* kExamples[] = {
    "dtrun --standalone --nproc_per_node 2 configs/fashion_mnist_convnet.json",
    "dtrun configs/fashion_mnist_convnet.json train.num_train_epochs=1",
    "dtrun --nproc_per_node gpu --log_dir logs train.py --lr 0.1",
    "dtrun --nnodes 2 --rdzv_endpoint node0:29400 CONFIG.json   (on both nodes)",
};

constexpr char kExitCodes[] =
    "Exit codes: 0 success; the first failing worker's own, or 128+N for signal N; 64 wrong command line; "
    "66 input missing; 69 no rendezvous; 70 a bug in dtrun; 77 refused; 78 invalid config; 128+N dtrun "
    "itself "
    "was stopped by signal N.";

// Appends `text` in lines of at most `columns`, all but the first behind `indent` spaces. The cursor stands
// at `at`.
void append_wrapped(std::string* out, const std::string& text, std::size_t at, std::size_t indent,
                    std::size_t columns) {
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && at + 1 + word.size() > columns) {
      *out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      *out += ' ';
      ++at;
    }
    *out += word;
    at += word.size();
  }
  *out += '\n';
}

void append_row(std::string* out, const std::string& left, const std::string& right, std::size_t indent,
                std::size_t columns) {
  *out += left;
  std::size_t at = left.size();
  if (at + 2 > indent) {
    *out += '\n';
    at = 0;
  }
  *out += std::string(indent - at, ' ');
  append_wrapped(out, right, indent, indent, columns);
}

std::string left_side(const OptionText& option) {
  std::string text = *option.short_name ? "  -" + std::string(option.short_name) + ", " : "  ";
  text += "--" + std::string(option.name);
  if (!option.is_flag) text += " " + std::string(option.placeholder);
  return text;
}

}  // namespace

std::string help_text(int columns) {
  const std::size_t width =
      std::clamp<std::size_t>(columns < 0 ? 0 : static_cast<std::size_t>(columns), kNarrowest, kWidest);
  const std::size_t indent = width >= 100 ? 34 : 28;
  std::string text = "dtrun starts and supervises distributed training.\n\nUsage:\n";
  for (const Row& use : kUses) append_row(&text, "  " + std::string(use.left), use.right, 48, width);
  const char* group = "";
  for (const OptionText& option : option_table()) {
    if (std::strcmp(group, option.group) != 0) text += "\n" + std::string(option.group) + ":\n";
    group = option.group;
    append_row(&text, left_side(option), option.help, indent, width);
  }
  append_row(&text, "  -h, --help", "Print this text and exit", indent, width);
  append_row(&text, "  --version", "Print the version and exit", indent, width);
  text += '\n';
  append_wrapped(&text, kSources, 0, 0, width);
  text += "\nExamples:\n";
  for (const char* example : kExamples) text += "  " + std::string(example) + "\n";
  text += '\n';
  append_wrapped(&text, kExitCodes, 0, 0, width);
  return text;
}

}  // namespace dtrun::cmd
