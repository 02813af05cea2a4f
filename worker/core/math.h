// Functions of double whose last bit is the same on every kind of machine. The C library's may be compiled
// with and without fused multiply-add, and round some values differently.
#pragma once

#include <cstdint>

namespace dtrun::worker {

// REQUIRES: x > 0 and normal. Exact to about 1e-15.
double natural_logarithm(double x);
// e^x, to about 1e-15 of it; 0 or infinity where a double has no such value.
double exponential(double x);
// base^exponent. REQUIRES: base > 0 and normal, or base == 0 and exponent >= 0.
double power(double base, double exponent);
// base^exponent by squaring. REQUIRES: exponent >= 0.
double power(double base, std::int64_t exponent);
// cos(2 pi turns), of any number of turns.
double cosine_of_turns(double turns);

}  // namespace dtrun::worker
