// News of a run's nodes for people: which ones left, were lost or refused, and when. A short list, the newest
// last; an entry on an absent node holds until a member of that host joins. Pure bookkeeping: Stepper decides
// what is news and tells the members.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

class RecentNews {
 public:
  static constexpr std::size_t kKept = 16;
  // No more are said within kSpell: what happens to a thousand nodes at once must not become a million lines.
  static constexpr int kSaidInSpell = 8;
  static constexpr Millis kSpell = 10000;

  // Keeps it; its age does not matter. False if members need not be told: the same is known already (only its
  // time is new), or too much was said just before.
  bool note(News news, Millis now);

  // A member of this host joined: it is no longer missing. True if the host had left, or was lost.
  bool came(const std::string& host);

  // Begins with the absences that an earlier coordinator knew, and counts their changes on.
  void restore(const std::vector<News>& missing, std::int64_t changes, Millis now);
  // The number of changes ever made to the list of missing nodes.
  std::int64_t changes() const { return changes_; }

  // The newest last, with their ages.
  std::vector<News> all(Millis now) const;
  // The newest of each node that is gone or refused and did not come since; at most `limit`, the newest.
  std::vector<News> missing(Millis now, std::size_t limit) const;

 private:
  struct Item {
    News news;
    Millis at = 0;
    bool missing = false;
  };

  static News aged(const Item& item, Millis now);

  std::deque<Item> items_;
  std::int64_t changes_ = 0;
  Millis spell_began_ = 0;
  int said_in_spell_ = 0;
};

}  // namespace dtrun::rendezvous
