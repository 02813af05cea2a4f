#include "agent/core/limit_tag.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "agent/core/environment.h"

namespace dtrun::limit_tag_test {

using namespace dtrun::agent;

namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
const std::string kAgent = "0123456789abcdef0123456789abcdef", kOther = "fedcba9876543210fedcba9876543210";

LimitTag worker(const std::string& agent, int serial) { return limit_tag(worker_tag(agent, serial)); }

std::string text_of(std::uint64_t limit) { return limit == kUnlimited ? "unlimited" : std::to_string(limit); }

// As the kernel writes it.
std::string limits(const Limit& limit) {
  const auto column = [](std::string text) { return text + std::string(21 - text.size(), ' '); };
  return "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max locked memory         8388608              8388608              bytes     \n"
         "Max file locks            " +
         column(text_of(limit.soft)) + column(text_of(limit.hard)) + "locks     \n";
}

}  // namespace

TEST_CASE("a worker's tag is found by its own tag and by its agent's, and by no other") {
  const std::string text = limits(tagged_limit({kUnlimited, kUnlimited}, worker(kAgent, 3)));
  CHECK(has_tag(text, worker(kAgent, 3)));
  CHECK(has_tag(text, limit_tag(kAgent)));
  CHECK_FALSE(has_tag(text, worker(kAgent, 2)));
  CHECK_FALSE(has_tag(text, worker(kAgent, 13)));
  CHECK_FALSE(has_tag(text, worker(kOther, 3)));
  CHECK_FALSE(has_tag(text, limit_tag(kOther)));
}

TEST_CASE("a process without a tag has none, whatever its limit") {
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1} << 40, kUnlimited}) {
    CHECK_FALSE(has_tag(limits({limit, limit}), worker(kAgent, 0)));
    CHECK_FALSE(has_tag(limits({limit, kUnlimited}), limit_tag(std::string(32, '0'))));
  }
  CHECK_FALSE(has_tag("", limit_tag(kAgent)));
  CHECK_FALSE(has_tag("Max file locks ", limit_tag(kAgent)));
}

TEST_CASE("a tag has room for 16,777,216 workers, and takes 16 digits of a tag") {
  const int last = (1 << 24) - 1;
  const std::string text = limits(tagged_limit({kUnlimited, kUnlimited}, worker(kAgent, last)));
  CHECK(has_tag(text, worker(kAgent, last)));
  CHECK_FALSE(has_tag(text, worker(kAgent, last - 1)));
  CHECK_FALSE(has_tag(text, worker(kAgent, last >> 1)));
  CHECK(has_tag(text, limit_tag(kAgent)));
  CHECK(limit_tag(kAgent.substr(0, 16)).mask != 0);
  CHECK(limit_tag(kAgent.substr(0, 15)).mask == 0);
}

TEST_CASE("what is no tag marks nothing and finds nothing") {
  for (const std::string tag : {"", "x", "abc", "another.0;"}) {
    CHECK(limit_tag(tag).mask == 0);
    CHECK_FALSE(has_tag(limits({5, 5}), limit_tag(tag)));
  }
}

TEST_CASE("the limit of a job within a job belongs to both, and stays below the hard limit") {
  const Limit outer = tagged_limit({kUnlimited, kUnlimited}, worker(kAgent, 1));
  CHECK(outer.hard == kUnlimited);
  const Limit inner = tagged_limit(outer, worker(kOther, 2));
  CHECK(inner.soft < inner.hard);
  CHECK(has_tag(limits(inner), worker(kAgent, 1)));
  CHECK(has_tag(limits(inner), worker(kOther, 2)));
  const Limit innermost = tagged_limit(inner, worker(kOther, 7));
  CHECK(innermost.hard == inner.hard);
  CHECK(has_tag(limits(innermost), worker(kAgent, 1)));
  CHECK(has_tag(limits(innermost), worker(kOther, 7)));
}

}  // namespace dtrun::limit_tag_test
