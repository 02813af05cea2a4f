#include "proto/core/home_path.h"

#include <doctest/doctest.h>

namespace dtrun::home_path_test {

TEST_CASE("a tilde at the beginning is the home") {
  CHECK(expanded_path("~/runs/a", "/home/ada").value() == "/home/ada/runs/a");
  CHECK(expanded_path("~", "/home/ada").value() == "/home/ada");
  CHECK(expanded_path("~/", "/home/ada").value() == "/home/ada/");
  for (const char* same : {"", "runs/~", "./~", "/a/~/b", "a$b/c", "a~", "$", "$1", "cost-$5"})
    CHECK_MESSAGE(expanded_path(same, "/home/ada").value() == same, same);
}

TEST_CASE("a path for which a folder of a strange name would be made is refused") {
  for (const char* wrong : {"$HOME/x", "${HOME}/x", "/data/$USER/x", "$_x", "~ada/x", "~+"})
    CHECK_MESSAGE(!expanded_path(wrong, "/home/ada").ok(), wrong);
  for (const char* home : {"", "relative", static_cast<const char*>(nullptr)})
    CHECK_FALSE(expanded_path("~/x", home).ok());
}

}  // namespace dtrun::home_path_test
