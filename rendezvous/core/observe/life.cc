#include "rendezvous/core/observe/life.h"

#include <iterator>

namespace dtrun::rendezvous {

bool Life::note(const GoodputKind* kind, Millis now) {
  if (!spans_.empty() && spans_.back().kind == kind) return false;
  spans_.push_back({.kind = kind, .begin = now});
  if (spans_.size() <= kMost) return true;
  // The first keeps its begin, and the newest has no end yet.
  auto shortest = spans_.begin() + 1;
  for (auto span = shortest; span + 1 != spans_.end(); ++span)
    if ((span + 1)->begin - span->begin < (shortest + 1)->begin - shortest->begin) shortest = span;
  const bool joins = std::prev(shortest)->kind == std::next(shortest)->kind;
  spans_.erase(shortest, shortest + (joins ? 2 : 1));
  return true;
}

}  // namespace dtrun::rendezvous
