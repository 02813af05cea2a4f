// The loops of batch norms behind kernels.h, for the instruction set of the file that includes
// kernels_impl.h, whose rules hold here too.
#pragma once

#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/sums_impl.h"

namespace dtrun::worker::planned::DTRUN_KERNELS {
namespace {

using Sums = float __attribute__((vector_size(4 * kSums)));

inline Sums sums_at(const float* values) {
  Sums sums;
  __builtin_memcpy(&sums, values, sizeof sums);
  return sums;
}

// Of four vectors what folded() makes of each.
using FourSums = float __attribute__((vector_size(16)));
inline FourSums folded(const Sums& a, const Sums& b, const Sums& c, const Sums& d) {
  const auto halves = [](const Sums& x, const Sums& y) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  };
  const Sums ab = halves(a, b), cd = halves(c, d);
  const Sums four =
      __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
      __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  const auto two = __builtin_shufflevector(four, four, 0, 1, 4, 5, 8, 9, 12, 13) +
                   __builtin_shufflevector(four, four, 2, 3, 6, 7, 10, 11, 14, 15);
  return __builtin_shufflevector(two, two, 0, 2, 4, 6) + __builtin_shufflevector(two, two, 1, 3, 5, 7);
}

// The sums over all samples of each of kTerms terms of a channel's pixels: of a plane as sum_of() makes them,
// of the planes one after the other. `terms(offset, sums)` adds the terms of kSums pixels to sums[kTerms],
// `term(offset, which)` is one of a single pixel. kPlanes at a time, since an addition waits for the one
// before.
template <int kTerms, typename Terms, typename Term>
inline void sums_of_channel(const Planes& p, std::size_t channel, const Terms& terms, const Term& term,
                            double* totals) {
  constexpr std::size_t kPlanes = 4;
  for (int t = 0; t < kTerms; ++t) totals[t] = 0;
  for (std::size_t first = 0; first < p.samples; first += kPlanes) {
    Sums sums[kPlanes][kTerms] = {};
    const std::size_t planes = p.samples - first < kPlanes ? p.samples - first : kPlanes;
    const auto plane = [&](std::size_t n) { return ((first + n) * p.channels + channel) * p.pixels; };
    const std::size_t whole = p.pixels / kSums * kSums;
    if (planes == kPlanes) {
      for (std::size_t i = 0; i < whole; i += kSums)
#pragma GCC unroll 4
        for (std::size_t n = 0; n < kPlanes; ++n) terms(plane(n) + i, sums[n]);
    } else {
      for (std::size_t n = 0; n < planes; ++n)
        for (std::size_t i = 0; i < whole; i += kSums) terms(plane(n) + i, sums[n]);
    }
    for (std::size_t n = 0; whole < p.pixels && n < planes; ++n)
      for (int t = 0; t < kTerms; ++t) {
        float last[kSums];
        __builtin_memcpy(last, &sums[n][t], sizeof last);
        for (std::size_t i = whole; i < p.pixels; ++i) last[i - whole] += term(plane(n) + i, t);
        __builtin_memcpy(&sums[n][t], last, sizeof last);
      }
    for (int t = 0; t < kTerms; ++t) {
      const FourSums four = folded(sums[0][t], sums[1][t], sums[2][t], sums[3][t]);
      for (std::size_t n = 0; n < planes; ++n) totals[t] += static_cast<double>(four[n]);
    }
  }
}

void batch_moments(const Planes& p, float epsilon, const float* in, float* moments) {
  const auto count = static_cast<double>(p.samples * p.pixels);
  for (std::size_t c = 0; c < p.channels; ++c) {
    double sum;
    sums_of_channel<1>(
        p, c, [&](std::size_t i, Sums* sums) { *sums += sums_at(in + i); },
        [&](std::size_t i, int) { return in[i]; }, &sum);
    const auto mean = static_cast<float>(sum / count);
    sums_of_channel<1>(
        p, c,
        [&](std::size_t i, Sums* sums) {
          const Sums centred = sums_at(in + i) - mean;
          *sums += centred * centred;
        },
        [&](std::size_t i, int) { return (in[i] - mean) * (in[i] - mean); }, &sum);
    const auto variance = static_cast<float>(sum / count);
    moments[3 * c] = mean, moments[3 * c + 1] = 1.0f / __builtin_sqrtf(variance + epsilon);
    moments[3 * c + 2] = variance;
  }
}

void batch_norm(const Planes& p, const float* in, const float* weight, const float* bias,
                const float* moments, float* out) {
  for (std::size_t plane = 0; plane < p.samples * p.channels; ++plane) {
    const std::size_t c = plane % p.channels;
    const float mean = moments[3 * c], scale = moments[3 * c + 1] * weight[c], offset = bias[c];
    const float* const x = in + plane * p.pixels;
    float* const y = out + plane * p.pixels;
    for (std::size_t i = 0; i < p.pixels; ++i) y[i] = (x[i] - mean) * scale + offset;
  }
}

void batch_sums(const Planes& p, const float* in, const float* centre, double* sums) {
  for (std::size_t c = 0; c < p.channels; ++c) {
    double totals[2];
    sums_of_channel<2>(
        p, c,
        [&](std::size_t i, Sums* to) {
          const Sums x = sums_at(in + i) - centre[c];
          to[0] += x;
          to[1] += x * x;
        },
        [&](std::size_t i, int which) {
          const float x = in[i] - centre[c];
          return which == 0 ? x : x * x;
        },
        totals);
    sums[c] = totals[0], sums[p.channels + c] = totals[1];
  }
}

// Of the gradient, and of it times the normalised input.
inline void gradient_sums_of_channel(const Planes& p, std::size_t c, const float* in, const float* moments,
                                     const float* out_gradient, double* totals) {
  const float mean = moments[3 * c], scale = moments[3 * c + 1];
  sums_of_channel<2>(
      p, c,
      [&](std::size_t i, Sums* sums) {
        const Sums d = sums_at(out_gradient + i);
        sums[0] += d;
        sums[1] += d * ((sums_at(in + i) - mean) * scale);
      },
      [&](std::size_t i, int which) {
        return which == 0 ? out_gradient[i] : out_gradient[i] * ((in[i] - mean) * scale);
      },
      totals);
}

inline void in_gradient_of_channel(const Planes& p, std::size_t c, const float* in, const float* weight,
                                   const float* moments, const float* out_gradient, float mean_d,
                                   float mean_dx, bool add, float* in_gradient) {
  const float mean = moments[3 * c], scale = moments[3 * c + 1], slope = weight[c] * scale;
  for (std::size_t n = 0; n < p.samples; ++n) {
    const std::size_t plane = (n * p.channels + c) * p.pixels;
    const float *const x = in + plane, *const d = out_gradient + plane;
    float* const to = in_gradient + plane;
    const auto part = [&](std::size_t i) {
      return slope * (d[i] - mean_d - (x[i] - mean) * scale * mean_dx);
    };
    if (add)
      for (std::size_t i = 0; i < p.pixels; ++i) to[i] += part(i);
    else
      for (std::size_t i = 0; i < p.pixels; ++i) to[i] = part(i);
  }
}

void batch_norm_backward(const Planes& p, const float* in, const float* weight, const float* moments,
                         const float* out_gradient, bool add, float* in_gradient, bool add_parameters,
                         float* weight_gradient, float* bias_gradient) {
  const auto count = static_cast<float>(p.samples * p.pixels);
  for (std::size_t c = 0; c < p.channels; ++c) {
    double totals[2];
    gradient_sums_of_channel(p, c, in, moments, out_gradient, totals);
    const auto d_bias = static_cast<float>(totals[0]), d_weight = static_cast<float>(totals[1]);
    put(add_parameters, d_bias, bias_gradient + c);
    put(add_parameters, d_weight, weight_gradient + c);
    if (in_gradient != nullptr)
      in_gradient_of_channel(p, c, in, weight, moments, out_gradient, d_bias / count, d_weight / count, add,
                             in_gradient);
  }
}

void batch_gradient_sums(const Planes& p, const float* in, const float* moments, const float* out_gradient,
                         double* sums) {
  for (std::size_t c = 0; c < p.channels; ++c) {
    double totals[2];
    gradient_sums_of_channel(p, c, in, moments, out_gradient, totals);
    sums[c] = totals[0], sums[p.channels + c] = totals[1];
  }
}

void batch_in_gradient(const Planes& p, const float* in, const float* weight, const float* moments,
                       const float* out_gradient, const float* means, bool add, float* in_gradient) {
  for (std::size_t c = 0; c < p.channels; ++c)
    in_gradient_of_channel(p, c, in, weight, moments, out_gradient, means[c], means[p.channels + c], add,
                           in_gradient);
}

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS
