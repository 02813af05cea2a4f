// A page of the manual as data, and its three forms: text for a terminal, a man page, Markdown. Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace dtrun::cmd {

struct PageItem {
  std::string term, text;
};
struct Paragraph {
  std::string text;
};
struct Verbatim {
  std::string text;  // lines that stay as they are
};
using PageBlock = std::variant<PageItem, Paragraph, Verbatim>;

struct Section {
  std::string title;
  int level = 1;                       // 2: belongs to the section of level 1 before it
  std::vector<PageBlock> blocks = {};  // none: only a title, which a terminal does without
};

struct Page {
  std::string name;     // "dtrun", "dtrun store", "dtrun-config"
  int man_section = 1;  // 1: programs, 5: files
  std::string summary;  // one line, no full stop
  std::vector<PageItem> usage = {};
  std::vector<std::string> description = {};  // paragraphs
  std::vector<Section> sections = {};
  std::size_t term_columns = 28;  // of a terminal's 80, at most, before the texts of items
};

// No line is longer than `columns` (the terminal's, 80 at least), nor longer than people like to read.
std::string as_text(const Page& page, int columns);

// In the language of man(7), ASCII alone.
std::string as_man(const Page& page, const std::string& version);

std::string as_markdown(const Page& page);

}  // namespace dtrun::cmd
