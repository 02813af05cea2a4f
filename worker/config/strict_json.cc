#include "worker/config/strict_json.h"

#include <algorithm>
#include <unordered_set>

#include "proto/core/utf8.h"
#include "proto/json/json.h"

namespace dtrun::worker {

namespace {

// The token with "~" and "/" escaped as in RFC 6901.
std::string pointer_token(std::string_view key) {
  std::string token;
  for (char c : key) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

// Builds the value from the parser's events. A false return value ends the parse.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no such event comes from text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    Level& level = levels_.back();
    level.key = value;
    if (!level.seen.insert(value).second) repeated.push_back(pointer(pointer_token(value)));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.size(), what.find("] ") + 2));
    if (what.starts_with("parse error")) what.remove_prefix(std::min(what.size(), what.find(": ") + 2));
    fault = place(position) + printable(what);
    return false;
  }

  Json root;
  std::vector<std::string> repeated;
  std::string fault;

 private:
  // A container that is being filled. Only the innermost one grows, so the pointers stay valid.
  struct Level {
    Json* container;
    std::string key = {};  // of the next member, or of the last one
    std::unordered_set<std::string> seen = {};
  };

  Json* insert(Json value) {
    if (levels_.empty()) {
      root = std::move(value);
      return &root;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      level.container->push_back(std::move(value));
      return &level.container->back();
    }
    // Appended without a look-up, which would make a large object cost quadratic time.
    auto& members = level.container->get_ref<Json::object_t&>();
    members.push_back({level.key, std::move(value)});
    return &members.back().second;
  }

  bool add(Json value) {
    insert(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (levels_.size() == kMaxJsonDepth) {
      fault = pointer("") + " is nested more than " + std::to_string(kMaxJsonDepth) + " levels deep";
      return false;
    }
    levels_.push_back({insert(std::move(container))});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string pointer(const std::string& last) const {
    std::string path;
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      const Level& level = levels_[i];
      path += '/' + (level.container->is_array() ? std::to_string(level.container->size() - 1)
                                                 : pointer_token(level.key));
    }
    return path + '/' + last;
  }

  // position: bytes read so far, the offending one included.
  std::string place(std::size_t position) const {
    const std::string_view read = text_.substr(0, std::min(position, text_.size()));
    const std::string_view before = read.substr(0, read.empty() ? 0 : read.size() - 1);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column =
        newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": ";
  }

  std::string_view text_;
  std::vector<Level> levels_;
};

// The first value of each repeated key stays.
void drop_repeats(Json& value) {
  if (value.is_object()) {
    Json::object_t kept;
    std::unordered_set<std::string> seen;
    for (auto& [key, member] : value.get_ref<Json::object_t&>()) {
      drop_repeats(member);
      if (seen.insert(key).second) kept.push_back({key, std::move(member)});
    }
    value = std::move(kept);
  } else if (value.is_array()) {
    for (Json& element : value) drop_repeats(element);
  }
}

}  // namespace

Result<StrictJson> parse_strict_json(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return Status(kExitConfig, "is empty, wanted JSON");
  Builder builder(text);
  if (!Json::sax_parse(text, &builder)) return Status(kExitConfig, builder.fault);
  if (!builder.repeated.empty()) drop_repeats(builder.root);
  return StrictJson{std::move(builder.root), std::move(builder.repeated)};
}

std::string printable(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const bool utf8 = !invalid_utf8_at(text);
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  // Long strings are cut before they are escaped, containers after.
  if (value.is_string() && value.get_ref<const std::string&>().size() > kLongest) {
    return '"' + printable(value.get_ref<const std::string&>().substr(0, kLongest)) + "…\"";
  }
  std::string text = json_text(value);
  if (text.size() > kLongest) text = printable(text.substr(0, kLongest)) + "…";
  return text;
}

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "something else";
  }
}

}  // namespace dtrun::worker
