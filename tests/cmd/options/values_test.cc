// Values of options: each limit from both sides.
#include "cmd/options/values.h"

#include <doctest/doctest.h>

namespace dtrun::cmd::values_test {
namespace {

// The message of a refusal, which names the option; empty if `result` is a value.
template <typename T>
std::string refusal(const Result<T>& result) {
  if (result.ok()) return "";
  CHECK(result.status().exit_code() == kExitUsage);
  CHECK(result.status().message().starts_with("--option"));
  return result.status().message();
}

Given given(const std::string& value) { return {value, "--option"}; }

}  // namespace

TEST_CASE("a number is at least what its option allows, and at most what an int holds") {
  CHECK(parse_int(given("3"), 3, "3 or more").value() == 3);
  CHECK(refusal(parse_int(given("2"), 3, "3 or more")) == "--option=2: expected 3 or more");
  CHECK(parse_int(given("2147483647"), 0, "x").value() == 2147483647);
  CHECK_FALSE(refusal(parse_int(given("2147483648"), 0, "x")).empty());
}

TEST_CASE("a word for a shell has quotes where it needs them") {
  CHECK(shell_word("--rdzv_endpoint=node0:29400") == "--rdzv_endpoint=node0:29400");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a b") == "'a b'");
  CHECK(shell_word("it's") == "'it'\\''s'");
}

TEST_CASE("a count is from 1 to its option's most") {
  for (const char* good : {"1", "7"}) CHECK(parse_count(given(good), 7, "1 to 7").ok());
  for (const char* wrong : {"0", "8"}) CHECK_FALSE(refusal(parse_count(given(wrong), 7, "1 to 7")).empty());
}

TEST_CASE("seconds are from 0 to ten million") {
  CHECK(parse_seconds(given("0")).value() == std::chrono::milliseconds(0));
  CHECK(parse_seconds(given("1e7")).value() == std::chrono::milliseconds(10'000'000'000));
  for (const char* wrong : {"-0.001", "10000000.1", "inf", "nan"}) {
    CAPTURE(wrong);
    CHECK(refusal(parse_seconds(given(wrong))).ends_with("expected a number of seconds, 0 or more"));
  }
}

TEST_CASE("nodes are from 1 to 65536") {
  CHECK(parse_nodes(given("1:65536")).value().max == 65536);
  CHECK(parse_nodes(given("65536:65536")).value().min == 65536);
  for (const char* wrong : {"0:1", "1:65537", "65537"})
    CHECK_FALSE(refusal(parse_nodes(given(wrong))).empty());
}

TEST_CASE("an IPv6 address stands alone or in brackets; what is neither names the way out") {
  for (const char* text : {"::1", "fd77::10", "fe80::1%eth0"}) {
    const auto endpoint = parse_endpoint(given(text), 29400);
    REQUIRE_MESSAGE(endpoint.ok(), text);
    CHECK(endpoint.value().host == text);
    CHECK(endpoint.value().port == 29400);
  }
  CHECK(parse_endpoint(given("[fd77::10]:29500"), 1).value().port == 29500);
  for (const char* text : {"fd77::10:29400", "node0:29400:1", "fd77:::1"})
    CHECK(refusal(parse_endpoint(given(text), 1))
              .ends_with("an IPv6 address with a port is written [ADDRESS]:PORT"));
}

TEST_CASE("several endpoints have one port, and each host is named once") {
  const auto listed = [](const std::string& text) {
    const auto endpoints = parse_endpoints(given(text), 29400);
    REQUIRE_MESSAGE(endpoints.ok(), text);
    std::string all;
    for (const Endpoint& one : endpoints.value()) all += endpoint_text(one) + " ";
    return all;
  };
  CHECK(listed("a") == "a:29400 ");
  CHECK(listed("a,b,c") == "a:29400 b:29400 c:29400 ");
  CHECK(listed("a,b,c:7") == "a:7 b:7 c:7 ");
  CHECK(listed("a:7,b:7") == "a:7 b:7 ");
  CHECK(listed("fd77::1,[fd77::2]:7") == "[fd77::1]:7 [fd77::2]:7 ");
  CHECK(refusal(parse_endpoints(given("a:7,b:8"), 1)).find("one port for all hosts") != std::string::npos);
  CHECK(refusal(parse_endpoints(given("a,b,a"), 1)).find("a is named twice") != std::string::npos);
  CHECK(refusal(parse_endpoints(given("a,b,c,d,e,f,g,h,i,j"), 1)).find("at most 9 hosts") !=
        std::string::npos);
  for (const char* wrong : {"", "a,", ",a", "a,,b", "a,b c"})
    CHECK_FALSE(refusal(parse_endpoints(given(wrong), 1)).empty());
}

TEST_CASE("a port is from 1 to 65535; an endpoint's may also be 0, for any free one") {
  CHECK(parse_port(given("1")).value() == 1);
  CHECK(parse_port(given("65535")).value() == 65535);
  for (const char* wrong : {"0", "65536"}) CHECK_FALSE(refusal(parse_port(given(wrong))).empty());
  CHECK(parse_endpoint(given("h:0"), 1).value().port == 0);
  CHECK(parse_endpoint(given("h:65535"), 1).value().port == 65535);
  CHECK_FALSE(refusal(parse_endpoint(given("h:65536"), 1)).empty());
}

TEST_CASE("a size is from 1 byte to 2^62") {
  CHECK(parse_size(given("1")).value() == 1);
  CHECK_FALSE(refusal(parse_size(given("0"))).empty());
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  for (const char* most : {"4611686018427387904", "4194304T"})
    CHECK(parse_size(given(most)).value() == kMost);
  for (const char* wrong : {"4611686018427387905", "4194305T"})
    CHECK_FALSE(refusal(parse_size(given(wrong))).empty());
}

TEST_CASE("ages have a unit and end after 100 years") {
  using std::chrono::seconds;
  CHECK(parse_age(given("90s")).value() == seconds(90));
  CHECK(parse_age(given("30m")).value() == seconds(1800));
  CHECK(parse_age(given("24h")).value() == seconds(86400));
  CHECK(parse_age(given("36500d")).value() == seconds(std::int64_t{36500} * 86400));
  for (const char* wrong : {"", "h", "24", "0h", "-1h", "1.5h", "24 h", "24hh", "36501d", "99999999999d"})
    CHECK_FALSE(refusal(parse_age(given(wrong))).empty());
}

TEST_CASE("streams are 0 to 3") {
  CHECK(parse_streams(given("3")).value().of(0) == 3);
  CHECK(parse_streams(given("1:3")).value().of(1) == 3);
  for (const char* wrong : {"4", "1:4", "-1"}) CHECK_FALSE(refusal(parse_streams(given(wrong))).empty());
}

}  // namespace dtrun::cmd::values_test
