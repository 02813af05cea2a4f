#include "rendezvous/core/run/news.h"

#include <algorithm>
#include <utility>

#include "proto/core/text.h"

namespace dtrun::rendezvous {
namespace {

// Names and refusals quote texts from an agent: they must not fill the others' terminals.
constexpr std::size_t kLongestText = 400;

void cut(std::string* text) {
  *text = shortened(*text, kLongestText);
  std::replace_if(
      text->begin(), text->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
}

}  // namespace

bool RecentNews::note(News news, Millis now) {
  cut(&news.host);
  cut(&news.text);
  const bool missing = news.missing();
  changes_ += missing;
  const auto same = [&](const Item& item) {
    return item.missing == missing && item.news.kind == news.kind && item.news.host == news.host &&
           item.news.text == news.text && (missing || news.kind == News::kNote);
  };
  const auto known = std::find_if(items_.begin(), items_.end(), same);
  const bool again = known != items_.end();
  if (again) items_.erase(known);
  items_.push_back({.news = std::move(news), .at = now, .missing = missing});
  if (items_.size() > kKept) items_.pop_front();
  if (again) return false;
  if (now - spell_began_ >= kSpell) {
    spell_began_ = now;
    said_in_spell_ = 0;
  }
  return said_in_spell_++ < kSaidInSpell;
}

bool RecentNews::came(const std::string& host) {
  bool was_gone = false;
  for (Item& item : items_) {
    if (item.news.host != host || !item.missing) continue;
    item.missing = false;
    was_gone = item.news.kind != News::kRefused;
    ++changes_;
  }
  return was_gone;
}

void RecentNews::restore(const std::vector<News>& missing, std::int64_t changes, Millis now) {
  for (const News& news : missing) {
    items_.push_back({.news = news, .at = now - news.age, .missing = true});
    if (items_.size() > kKept) items_.pop_front();
  }
  changes_ = changes;
}

News RecentNews::aged(const Item& item, Millis now) {
  News news = item.news;
  news.age = now - item.at;
  return news;
}

std::vector<News> RecentNews::all(Millis now) const {
  std::vector<News> news;
  for (const Item& item : items_) news.push_back(aged(item, now));
  return news;
}

std::vector<News> RecentNews::missing(Millis now, std::size_t limit) const {
  std::vector<News> news;
  for (const Item& item : items_) {
    if (!item.missing) continue;
    std::erase_if(news, [&](const News& older) { return older.host == item.news.host; });
    news.push_back(aged(item, now));
  }
  if (news.size() > limit) news.erase(news.begin(), news.end() - static_cast<std::ptrdiff_t>(limit));
  return news;
}

}  // namespace dtrun::rendezvous
