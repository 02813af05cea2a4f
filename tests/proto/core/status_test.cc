#include "proto/core/status.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>

namespace dtrun::status_test {
namespace {

TEST_CASE("a status is a success unless it was given an exit code") {
  CHECK(Status().ok());
  CHECK(Status().exit_code() == kExitOk);
  const Status failure(kExitNoInput, "no such file");
  CHECK_FALSE(failure.ok());
  CHECK(failure.exit_code() == 66);
  CHECK(failure.message() == "no such file");
}

TEST_CASE("within() puts what failed in front and keeps the exit code") {
  const Status failure = Status(kExitConfig, "is missing").within("/train").within("c.json");
  CHECK(failure.message() == "c.json: /train: is missing");
  CHECK(failure.exit_code() == kExitConfig);
  CHECK(Status().within("c.json").ok());
  CHECK(Status().within("c.json").message().empty());
}

TEST_CASE("an errno becomes its sentence") {
  CHECK(errno_status(kExitNoInput, "/x", ENOENT).message() == "/x: No such file or directory");
}

TEST_CASE("a result has a value or a failure, and moves its value out") {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(5));
  REQUIRE(good.ok());
  const std::unique_ptr<int> value = std::move(good).value();
  CHECK(*value == 5);
  const Result<int> bad(Status(kExitSoftware, "broken"));
  CHECK_FALSE(bad.ok());
  CHECK(bad.status().message() == "broken");
}

}  // namespace
}  // namespace dtrun::status_test
