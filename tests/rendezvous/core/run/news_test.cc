// The news of a run that is kept, and the part that every node prints.
#include "rendezvous/core/run/news.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrun::rendezvous::news_test {
namespace {

News refused(const std::string& host, const std::string& why = "--max_restarts is 0 there but 1 here") {
  return {.kind = News::kRefused, .host = host, .text = host + " was refused: " + why, .age = 0};
}

}  // namespace

TEST_CASE("a node that is refused again and again is said once, and its last time is kept") {
  RecentNews news;
  CHECK(news.note(refused("b"), 0));
  CHECK_FALSE(news.note(refused("b"), 3000));
  CHECK(news.note(refused("b", "another reason"), 4000));
  REQUIRE(news.all(5000).size() == 2);
  CHECK(news.all(5000).front().age == 2000);
}

TEST_CASE("a node is missing until a member of its host joins; what happened stays known") {
  RecentNews news;
  news.note(refused("b"), 0);
  news.note({.kind = News::kNote, .host = "a", .text = "a was started again"}, 0);
  REQUIRE(news.missing(700, 4).size() == 1);
  CHECK(news.missing(700, 4).front().host == "b");
  news.came("b");
  CHECK(news.missing(700, 4).empty());
  CHECK(news.all(700).size() == 2);
  CHECK(news.note(refused("b"), 800));  // it went away meanwhile: news again
}

TEST_CASE("a node that left, and is refused when it comes back, is missing once: refused") {
  RecentNews news;
  news.note({.kind = News::kLeft, .host = "b", .text = "b left"}, 0);
  news.note(refused("b"), 5);
  REQUIRE(news.missing(5, 4).size() == 1);
  CHECK(news.missing(5, 4).front().kind == News::kRefused);
  CHECK(news.all(5).size() == 2);
}

TEST_CASE("no more than sixteen are kept, and the newest are told first") {
  RecentNews news;
  for (int i = 0; i < 40; ++i) news.note(refused("n" + std::to_string(i)), i);
  CHECK(news.all(40).size() == RecentNews::kKept);
  CHECK(news.all(40).back().host == "n39");
  REQUIRE(news.missing(40, 2).size() == 2);
  CHECK(news.missing(40, 2).front().host == "n38");
}

TEST_CASE("a thousand nodes lost at once are not a thousand lines; later ones are said again") {
  RecentNews news;
  int said = 0;
  for (int i = 0; i < 1000; ++i) said += news.note(refused("n" + std::to_string(i)), i);
  CHECK(said == RecentNews::kSaidInSpell);
  CHECK(news.note(refused("late"), RecentNews::kSpell));
}

TEST_CASE("a name or a text cannot fill a terminal or steer it") {
  RecentNews news;
  news.note({.kind = News::kLost, .host = std::string(100000, 'x'), .text = "a\x1b[2J\nb"}, 0);
  CHECK(news.all(0).front().host.size() == 400);
  CHECK(news.all(0).front().text == "a?[2J?b");
}

TEST_CASE("a node that comes back is told of each time, one that was refused did not go") {
  RecentNews news;
  for (Millis now = 0; now < 3; ++now) {
    CHECK_FALSE(news.came("b"));
    CHECK(news.note({.kind = News::kLost, .host = "b", .text = "b was silent"}, now));
    CHECK(news.came("b"));
    CHECK(news.note({.kind = News::kBack, .host = "b", .text = "b is back"}, now));
    CHECK(news.missing(now, 4).empty());
  }
  news.note(refused("c"), 3);
  CHECK_FALSE(news.came("c"));
  CHECK(news.changes() == 8);
}

TEST_CASE("what is missing is handed on with its age") {
  RecentNews news;
  news.restore({{.kind = News::kLeft, .host = "b", .text = "b left", .age = 40}}, 7, 100);
  REQUIRE(news.missing(110, 4).size() == 1);
  CHECK(news.missing(110, 4)[0].age == 50);
  CHECK(news.changes() == 7);
  CHECK(news.came("b"));
  CHECK(news.changes() == 8);
}

}  // namespace dtrun::rendezvous::news_test
