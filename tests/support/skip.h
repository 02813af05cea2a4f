// A case that this machine cannot run says so, and is not taken for one that passed.
#pragma once

#include <string>

namespace dtrun::test {

// Notes that the running case did not do what its name says; return right after it: `return skip("needs
// root");`. The test program then lists such cases at its end and exits with 77, unless a case failed. Cases
// that other machines may have to skip go into a suite that their dtrun_tests() names under NEEDS, so that
// ctest shows them apart from those that ran.
void skip(const std::string& why);

}  // namespace dtrun::test
