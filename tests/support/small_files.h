// Files that cannot grow: RLIMIT_FSIZE does to each file what a full disk does to all of them.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

namespace dtrun::test {

// While it lives, no file of this process grows beyond `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }
  SmallFiles(const SmallFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace dtrun::test
