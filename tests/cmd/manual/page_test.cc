// The three forms of a page, on pages made up for it and on the launcher's own.
#include "cmd/manual/page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "cmd/manual/manual.h"
#include "cmd/options/option_table.h"
#include "worker/config/config.h"

namespace dtrun::page_test {

using namespace dtrun::cmd;

namespace {

const Page kPage{
    .name = "dtrun try",
    .man_section = 1,
    .summary = "Try it",
    .usage = {{"dtrun try [options]", ""}},
    .description = {"With `dtrun try` things are tried, *all* of them, by <NAME>."},
    .sections = {
        {.title = "Options",
         .blocks = {PageItem{"--aim N", "How far, from -1 on [1]"},
                    PageItem{"--dry", "It isn't done; a \\ is kept"}}},
        {.title = "The rest", .level = 2, .blocks = {Paragraph{".so it is"}, Verbatim{"a  b\n.c 'd'\n"}}},
        {.title = "Nothing"}}};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a page as text: summary, description, usage, and sections that have something in them") {
  CHECK(as_text(kPage, 60) ==
        "Try it.\n"
        "\n"
        "With `dtrun try` things are tried, *all* of them, by <NAME>.\n"
        "\n"
        "Usage:\n"
        "  dtrun try [options]\n"
        "\n"
        "Options:\n"
        "  --aim N  How far, from -1 on [1]\n"
        "  --dry    It isn't done; a \\ is kept\n"
        "\n"
        "The rest:\n"
        "  .so it is\n"
        "  a  b\n"
        "  .c 'd'\n");
}

TEST_CASE("a page as a man page: what roff would take for a command or a hyphen is text") {
  CHECK(as_man(kPage, "dtrun 1.2") ==
        ".\\\" Made by dtrun help --format man.\n"
        ".TH \"DTRUN TRY\" 1 \"\" \"dtrun 1.2\" \"User Commands\"\n"
        ".SH NAME\ndtrun try \\- try it\n"
        ".SH SYNOPSIS\n.PP\n\\fBdtrun try [options]\\fR\n"
        ".SH DESCRIPTION\n.PP\nWith \\fBdtrun try\\fR things are tried, *all* of them, by <NAME>.\n"
        ".SH OPTIONS\n"
        ".TP\n\\fB\\-\\-aim N\\fR\nHow far, from \\-1 on [1]\n"
        ".TP\n\\fB\\-\\-dry\\fR\nIt isn\\(aqt done; a \\e is kept\n"
        ".SS The rest\n.PP\n\\&.so it is\n.PP\n.in +4n\n.nf\na  b\n\\&.c \\(aqd\\(aq\n.fi\n.in\n"
        ".SH NOTHING\n");
}

TEST_CASE("a page as Markdown: what would be emphasis or a tag is text") {
  CHECK(as_markdown(kPage) ==
        "<!-- Made by scripts/docs from the tables in the sources; edit those. -->\n"
        "# dtrun try\n\nTry it.\n"
        "\nWith `dtrun try` things are tried, \\*all\\* of them, by \\<NAME>.\n"
        "\n## Usage\n\n* `dtrun try [options]`\n"
        "\n## Options\n\n* `--aim N`: How far, from -1 on [1]\n* `--dry`: It isn't done; a \\\\ is kept\n"
        "\n### The rest\n\n.so it is\n\n```\na  b\n.c 'd'\n```\n"
        "\n## Nothing\n");
}

TEST_CASE("a text fits the terminal, and is never wider than people read") {
  for (const int columns : {80, 93, 110, 250}) {
    std::size_t widest = 0;
    for (const Page& page : {launcher_page({}, Detail::kLong), config_page()}) {
      for (const std::string& line : lines_of(as_text(page, columns))) {
        const bool example = line.starts_with("  dtrun ") || line.find('{') != line.npos;
        if (!example) widest = std::max(widest, line.size());
      }
    }
    CHECK(widest <= static_cast<std::size_t>(std::min(columns, 110)));
    CHECK(widest > static_cast<std::size_t>(std::min(columns, 110)) - 8);
  }
}

TEST_CASE("an option's first clause and a placeholder's words are what short lists and completion show") {
  CHECK(first_clause({.name = "a", .help = "How far; and more [1]"}) == "How far");
  CHECK(first_clause({.name = "a", .help = "How far [1]"}) == "How far");
  CHECK(first_clause({.name = "a", .help = "How far. And more"}) == "How far");
  using Words = std::vector<std::string>;
  CHECK(choices("N|auto|core-complex", {}) == Words{"auto", "core-complex"});
  CHECK(choices("HOST[:PORT]", {}).empty());
  const Command command{.name = "try", .summary = "", .options = {}, .run = nullptr};
  const Command* const commands[] = {&command};
  CHECK(choices("[COMMAND|config]", commands) == Words{"try", "config"});
}

TEST_CASE("the example on the config's page is a config") {
  const Page page = config_page();
  const auto section =
      std::ranges::find_if(page.sections, [](const Section& one) { return one.title == "Example"; });
  REQUIRE(section != page.sections.end());
  const auto& example = std::get<Verbatim>(section->blocks.front());
  const auto config = worker::parse_config(example.text, "example", {});
  REQUIRE_MESSAGE(config.ok(), config.status().message());
  CHECK(config.value().launch.nproc_per_node == "2");
}

TEST_CASE("the config's page has every key with what is allowed and its default") {
  // Without its line breaks.
  const std::string text = std::regex_replace(as_markdown(config_page()), std::regex("\n  "), " ");
  for (const char* line :
       {"* `output_dir`: ",
        "Relative paths are relative to the working directory; ~/ is the home, here and in other paths. Must "
        "be "
        "given.",
        "* `train.warmup_steps`: ", "Allowed: more than 0, at most 1000000. [0.01]",
        "* `train.optim`: The optimizer, as in torch.optim. Allowed: \"sgd\" or \"adamw\". [\"sgd\"]",
        "* `launch.log_dir`: Directory for the workers' output, as --log_dir.\n"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  }
}

}  // namespace dtrun::page_test
