#include "cmd/launch/core/time_order.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace dtrun::cmd {
namespace {

std::string all(TimeOrder<std::string>& order) {
  std::string text;
  while (const auto next = order.next()) text += (text.empty() ? "" : " ") + *next;
  return text;
}

TEST_CASE("nothing is told while a host may have something older") {
  TimeOrder<std::string> order(2);
  order.add(0, 1, 2, "a1");
  order.add(0, 3, 2, "a3");
  CHECK(!order.next());
  order.add(1, 2, 2, "b2");
  CHECK(all(order) == "a1 b2");  // b may have one before 3
  CHECK(order.waiting(0) == 2);
  order.is_up_to_date(1);
  CHECK(all(order) == "a3");
  CHECK(order.waiting(0) == 0);
  order.is_up_to_date(0);
  order.add(1, 5, 1, "b5");
  CHECK(all(order) == "b5");
  order.add(0, 4, 1, "a4");  // its line is slower
  CHECK(all(order) == "a4");
}

TEST_CASE(
    "each host's own order stays, also where its clock went back, and what has no time follows at once") {
  TimeOrder<std::string> order(2);
  for (const std::size_t host : {0u, 1u}) order.is_up_to_date(host);
  order.add(0, 5, 0, "a5");
  order.add(0, 2, 0, "a2");
  order.add(0, std::nullopt, 0, "a-end");
  order.add(1, 4, 0, "b4");
  order.add(1, 6, 0, "b6");
  CHECK(all(order) == "b4 a5 a2 a-end b6");
}

TEST_CASE("a host that is told to be up to date twice, or has nothing, holds nobody up") {
  TimeOrder<std::string> order(3);
  order.is_up_to_date(1);
  order.is_up_to_date(1);
  order.add(0, 1, 0, "a1");
  CHECK(!order.next());
  order.add(2, 2, 0, "c2");
  CHECK(all(order) == "a1");
  order.is_up_to_date(0);
  CHECK(all(order) == "c2");
}

TEST_CASE("however hosts' items come, they are told in the order of their times") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const std::size_t hosts = 1 + random() % 5;
    TimeOrder<std::string> order(hosts);
    std::vector<double> clocks(hosts, 0);
    std::vector<int> told;
    int added = 0;
    const auto take = [&] {
      while (const auto next = order.next()) told.push_back(std::stoi(*next));
    };
    for (int step = 0; step < 100; ++step) {
      const std::size_t host = random() % hosts;
      clocks[host] += 1 + random() % 5;
      order.add(host, clocks[host], 1, std::to_string(static_cast<int>(clocks[host])));
      ++added;
      take();
    }
    for (std::size_t host = 0; host < hosts; ++host) order.is_up_to_date(host);
    take();
    CHECK(std::ranges::is_sorted(told));
    CHECK(static_cast<int>(told.size()) == added);
  }
}

}  // namespace
}  // namespace dtrun::cmd
