// -H: words between commas, and groups in brackets.
#include <doctest/doctest.h>

#include <random>

#include "cmd/hosts/host_words.h"
#include "cmd/hosts/hostfile.h"
#include "proto/core/contract.h"

namespace dtrun::cmd::host_list_test {
namespace {

std::string read_list(std::string_view text) {
  const auto hosts = parse_host_list(text, "-H");
  if (!hosts.ok()) {
    CHECK(hosts.status().exit_code() == kExitUsage);
    CHECK(hosts.status().message().starts_with("-H: "));
    return hosts.status().message();
  }
  std::string result;
  for (const auto& host : hosts.value()) {
    result += (result.empty() ? "" : " ") + host.destination + "=" + std::to_string(host.slots);
  }
  return result;
}

}  // namespace

TEST_CASE("words between commas, where groups have commas of their own") {
  CHECK(read_list("a,b[0-3],user@h:2,c[1-2,7]") == "a=0 b0=0 b1=0 b2=0 b3=0 user@h=2 c1=0 c2=0 c7=0");
  CHECK(read_list("n[1,3]:4,[::1]:2,ada@[fd77::10]") == "n1=4 n3=4 ::1=2 ada@fd77::10=0");
  CHECK(read_list("a,a,b") == "a=2 b=0");
  CHECK(read_list("ada@n[1-2]-ib.example.org:2") == "ada@n1-ib.example.org=2 ada@n2-ib.example.org=2");
}

TEST_CASE("zeros in front are kept, as wide as the range's first number") {
  CHECK(read_list("n[08-11]") == "n08=0 n09=0 n10=0 n11=0");
  CHECK(read_list("n[099-101]") == "n099=0 n100=0 n101=0");
  CHECK(read_list("n[8-11]") == "n8=0 n9=0 n10=0 n11=0");
  CHECK(read_list("n[0-1,00,1-1]").find("is also") == std::string::npos);
  CHECK(read_list("n[00,007]") == "n00=0 n007=0");
}

TEST_CASE("the last of several groups runs fastest") {
  CHECK(read_list("r[1-2]n[1-2]") == "r1n1=0 r1n2=0 r2n1=0 r2n2=0");
  CHECK(read_list("[1-2]") == "1=0 2=0");
}

TEST_CASE("several groups name no more hosts together than one may, and no more are made") {
  CHECK(expand_groups("r[0-255]n[0-255]").value().size() == kMaxNodes);
  for (const char* text : {"r[0-256]n[0-255]", "r[0-255]n[0-256]", "a[0-99]b[0-99]c[0-99]"}) {
    CAPTURE(text);
    const auto names = expand_groups(text);
    REQUIRE_FALSE(names.ok());
    CHECK(names.status().message() == "more than 65536 hosts");
  }
}

TEST_CASE("a refusal quotes the word") {
  CHECK(read_list("") == "-H: expected hosts between commas, like a,b[0-3],ada@h:2");
  for (const char* text : {",", "a,", "a,,b", ",a"}) {
    CAPTURE(text);
    CHECK(read_list(text) == "-H: expected hosts between commas, like a,b[0-3],ada@h:2");
  }
  CHECK(read_list("a,b[3-1]") ==
        "-H: 'b[3-1]': expected numbers and ranges like [1-3,7] in brackets, not '3-1'");
  for (const char* group : {"", "x", "1-", "-1", "1-2-3", "1,,2", "1,", " 1", "1:2"}) {
    CAPTURE(group);
    CHECK_FALSE(parse_host_list("b[" + std::string(group) + "]", "-H").ok());
  }
  CHECK(read_list("a[1-2") == "-H: 'a[1-2': '[' without ']'");
  CHECK(read_list("a b").find("no host that ssh would take") != std::string::npos);
  CHECK(read_list("a]") == "-H: 'a]': ']' without '['");
  CHECK(read_list("a[1]b]c").ends_with("']' without '['"));
  CHECK(read_list("a:2,b,a") ==
        "-H: a is also in word 1: name it once with its slots, or without slots once for each");
  CHECK(read_list("a,b[0-65535]") == "-H: more than 65536 hosts");
}

TEST_CASE("a host's name is its destination without the user, whatever the user is") {
  const auto hosts = parse_host_list("a,ada@b,ada@example.org@c,ada@[::1]", "-H").value();
  CHECK(hosts[0].name() == "a");
  CHECK(hosts[1].name() == "b");
  CHECK(hosts[2].name() == "c");
  CHECK(hosts[3].name() == "::1");
}

TEST_CASE("any numbers in a group come out one by one") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string group, expected;
    int number = 0;
    const auto width = random() % 4;
    for (unsigned i = 0, ranges = 1 + random() % 5; i < ranges; ++i) {
      const auto padded = [&](int value) {
        const auto digits = std::to_string(value);
        return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
      };
      number += 1 + static_cast<int>(random() % 40);
      const int last = number + static_cast<int>(random() % 30);
      group += (i == 0 ? "" : ",") + padded(number) + (last == number ? "" : "-" + padded(last));
      for (; number <= last; ++number) expected += (expected.empty() ? "n" : " n") + padded(number) + "=0";
    }
    CHECK(read_list("n[" + group + "]") == expected);
  }
}

}  // namespace dtrun::cmd::host_list_test
