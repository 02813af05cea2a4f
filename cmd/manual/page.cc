#include "cmd/manual/page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "proto/core/overloaded.h"
#include "proto/core/text.h"

namespace dtrun::cmd {
namespace {

constexpr std::size_t kNarrowest = 60, kWidest = 110, kMarkdownWidth = 120;

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

std::string capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string indented(const std::string& text) {
  std::string all;
  for (const std::string& line : split(text)) all += line.empty() ? "\n" : "  " + line + "\n";
  return all;
}

// --- text

void append_row(std::string* out, const std::string& left, const std::string& right, std::size_t indent,
                std::size_t columns) {
  *out += left;
  if (right.empty()) {
    *out += '\n';
    return;
  }
  std::size_t at = left.size();
  if (at + 2 > indent) {
    *out += '\n';
    at = 0;
  }
  *out += std::string(indent - at, ' ');
  append_wrapped(out, right, indent, indent, columns);
}

// The column at which the texts of these items begin: behind the longest term, as far as that leaves room for
// them.
std::size_t text_column(const std::vector<PageItem>& items, std::size_t most) {
  std::size_t column = 0;
  for (const PageItem& item : items) column = std::max(column, item.term.size() + 4);
  return std::min(column, most);
}

std::vector<PageItem> items_of(const Section& section) {
  std::vector<PageItem> items;
  for (const PageBlock& block : section.blocks) {
    if (const PageItem* item = std::get_if<PageItem>(&block)) items.push_back(*item);
  }
  return items;
}

void append_section(std::string* out, const Section& section, std::size_t term_columns, std::size_t columns) {
  const std::size_t column = text_column(items_of(section), term_columns);
  if (!section.title.empty()) *out += section.title + ":\n";
  const std::size_t margin = section.title.empty() ? 0 : 2;
  for (const PageBlock& block : section.blocks) {
    std::visit(Overloaded{[&](const PageItem& item) {
                            append_row(out, "  " + item.term, item.text, column, columns);
                          },
                          [&](const Paragraph& paragraph) {
                            *out += std::string(margin, ' ');
                            append_wrapped(out, paragraph.text, margin, margin, columns);
                          },
                          [&](const Verbatim& verbatim) { *out += indented(verbatim.text); }},
               block);
  }
}

// --- man

// Text in a line: a hyphen stays a hyphen, and text in backquotes is bold.
std::string roff(const std::string& text) {
  std::string escaped;
  bool bold = false;
  for (char c : text) {
    if (c == '`') {
      bold = !bold;
      escaped += bold ? "\\fB" : "\\fR";
    } else if (c == '-') {
      escaped += "\\-";
    } else if (c == '\\') {
      escaped += "\\e";
    } else if (c == '\'') {
      escaped += "\\(aq";
    } else {
      escaped += c;
    }
  }
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}

std::string roff(const PageBlock& block) {
  return std::visit(
      Overloaded{[](const PageItem& item) {
                   return (item.text.empty() ? ".PP\n\\fB" : ".TP\n\\fB") + roff(item.term) + "\\fR\n" +
                          (item.text.empty() ? "" : roff(item.text) + "\n");
                 },
                 [](const Paragraph& paragraph) { return ".PP\n" + roff(paragraph.text) + "\n"; },
                 [](const Verbatim& verbatim) {
                   std::string all = ".PP\n.in +4n\n.nf\n";
                   for (const std::string& line : split(verbatim.text)) all += roff(line) + "\n";
                   return all + ".fi\n.in\n";
                 }},
      block);
}

// --- Markdown

std::string marked_down(const std::string& text) {
  std::string escaped;
  bool code = false;
  for (char c : text) {
    if (c == '`') code = !code;
    if (!code && (c == '*' || c == '<' || c == '\\')) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string marked_down(const PageBlock& block) {
  return std::visit(Overloaded{[](const PageItem& item) {
                                 std::string out;
                                 append_wrapped(&out,
                                                "* `" + item.term + "`" + (item.text.empty() ? "" : ": ") +
                                                    marked_down(item.text),
                                                0, 2, kMarkdownWidth);
                                 return out;
                               },
                               [](const Paragraph& paragraph) {
                                 std::string out;
                                 append_wrapped(&out, marked_down(paragraph.text), 0, 0, kMarkdownWidth);
                                 return out;
                               },
                               [](const Verbatim& verbatim) { return "```\n" + verbatim.text + "```\n"; }},
                    block);
}

// With an empty line before each block, except inside a list.
std::string marked_down(const std::vector<PageBlock>& blocks) {
  std::string text;
  bool in_list = false;
  for (const PageBlock& block : blocks) {
    const bool is_item = std::holds_alternative<PageItem>(block);
    text += (in_list && is_item ? "" : "\n") + marked_down(block);
    in_list = is_item;
  }
  return text;
}

}  // namespace

std::string as_text(const Page& page, int columns) {
  const std::size_t width =
      std::clamp<std::size_t>(columns < 0 ? 0 : static_cast<std::size_t>(columns), kNarrowest, kWidest);
  std::string text;
  append_wrapped(&text, page.summary + ".", 0, 0, width);
  for (const std::string& paragraph : page.description) {
    text += '\n';
    append_wrapped(&text, paragraph, 0, 0, width);
  }
  const std::size_t term_columns = std::max<std::size_t>(page.term_columns, width >= 100 ? 34 : 0);
  if (!page.usage.empty()) text += "\nUsage:\n";
  const std::size_t column = text_column(page.usage, 48);
  for (const PageItem& use : page.usage) append_row(&text, "  " + use.term, use.text, column, width);
  for (const Section& section : page.sections) {
    if (section.blocks.empty()) continue;
    text += '\n';
    append_section(&text, section, term_columns, width);
  }
  return text;
}

std::string as_man(const Page& page, const std::string& version) {
  std::string summary = page.summary;
  summary[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(summary[0])));
  std::string text = ".\\\" Made by dtrun help --format man.\n.TH \"" + capitals(page.name) + "\" " +
                     std::to_string(page.man_section) + " \"\" \"" + version + "\" \"" +
                     (page.man_section == 1 ? "User Commands" : "File Formats") + "\"\n.SH NAME\n" +
                     page.name + " \\- " + roff(summary) + "\n";
  if (!page.usage.empty()) text += ".SH SYNOPSIS\n";
  for (const PageItem& use : page.usage) text += roff(PageBlock(use));
  if (!page.description.empty()) text += ".SH DESCRIPTION\n";
  for (const std::string& paragraph : page.description) text += roff(PageBlock(Paragraph{paragraph}));
  for (const Section& section : page.sections) {
    text += section.level == 1 ? ".SH " + roff(capitals(section.title)) : ".SS " + roff(section.title);
    text += '\n';
    for (const PageBlock& block : section.blocks) text += roff(block);
  }
  return text;
}

std::string as_markdown(const Page& page) {
  std::string text =
      "<!-- Made by scripts/docs from the tables in the sources; edit those. -->\n# " + page.name + "\n\n";
  append_wrapped(&text, marked_down(page.summary + "."), 0, 0, kMarkdownWidth);
  for (const std::string& paragraph : page.description)
    text += "\n" + marked_down(PageBlock(Paragraph{paragraph}));
  if (!page.usage.empty())
    text += "\n## Usage\n" + marked_down(std::vector<PageBlock>(page.usage.begin(), page.usage.end()));
  for (const Section& section : page.sections) {
    text += (section.level == 1 ? "\n## " : "\n### ") + marked_down(section.title) + "\n" +
            marked_down(section.blocks);
  }
  return text;
}

}  // namespace dtrun::cmd
