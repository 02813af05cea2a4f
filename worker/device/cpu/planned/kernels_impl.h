// The loops behind kernels.h, for the instruction set of the file that includes this: plain ones, which the
// compiler turns into vectors. Includes nothing that has inline functions with external linkage: a copy of
// one compiled for AVX-512 must not become the program's only copy. The including file defines DTRUN_KERNELS
// (a namespace), DTRUN_KERNELS_NAME and DTRUN_VECTOR (floats in a vector register).
#include "worker/device/cpu/planned/batch_norm_impl.h"
#include "worker/device/cpu/planned/elementary_functions.h"
#include "worker/device/cpu/planned/kernels.h"
#include "worker/device/cpu/planned/sums_impl.h"

namespace dtrun::worker::planned::DTRUN_KERNELS {
namespace {

void to_bf16(std::size_t count, const float* in, std::uint16_t* out) {
  constexpr std::uint32_t kInfinity = 0x7F800000, kSmallestNormal = 0x00800000, kQuiet = 0x40;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, in + i, sizeof bits);
    const std::uint32_t magnitude = bits & 0x7FFFFFFF, upper = bits >> 16;
    const std::uint32_t nearest = (bits + 0x7FFF + (upper & 1)) >> 16;
    out[i] = static_cast<std::uint16_t>(magnitude > kInfinity         ? upper | kQuiet
                                        : magnitude < kSmallestNormal ? upper & 0x8000
                                                                      : nearest);
  }
}

void relu(std::size_t count, const float* in, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] < 0 ? 0.0f : in[i];  // keeps NaN
}

void relu_backward(std::size_t count, const float* out, const float* out_gradient, bool add,
                   float* in_gradient) {
  if (add) {
    for (std::size_t i = 0; i < count; ++i) in_gradient[i] += out[i] > 0 ? out_gradient[i] : 0.0f;
  } else {
    for (std::size_t i = 0; i < count; ++i) in_gradient[i] = out[i] > 0 ? out_gradient[i] : 0.0f;
  }
}

constexpr float kRootOf2OverPi = 0.7978845608028654f, kCubic = 0.044715f;

// out[i] = function(in[i]...), of Wide.
template <typename Function, typename... In>
inline void each_wide(std::size_t count, float* out, const Function& function, const In*... in) {
  std::size_t i = 0;
  for (; i + kWide <= count; i += kWide) store(function(load_wide(in + i)...), out + i);
  if (i == count) return;
  const std::size_t bytes = (count - i) * sizeof(float);
  float some[kWide] = {};
  const auto rest_of = [&](const float* from) {
    __builtin_memcpy(some, from + i, bytes);
    return load_wide(some);
  };
  store(function(rest_of(in)...), some);
  __builtin_memcpy(out + i, some, bytes);
}

void gelu(std::size_t count, const float* in, float* out) {
  const auto value = [](const Wide& x) {
    const Wide tanh = hyperbolic_tangent(kRootOf2OverPi * (x + kCubic * x * x * x));
    return 0.5f * x * (1.0f + tanh);
  };
  each_wide(count, out, value, in);
}

void gelu_backward(std::size_t count, const float* in, const float* out_gradient, bool add,
                   float* in_gradient) {
  const auto part = [](const Wide& x, const Wide& d) {
    const Wide tanh = hyperbolic_tangent(kRootOf2OverPi * (x + kCubic * x * x * x));
    const Wide inner = kRootOf2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return d * (0.5f * (1.0f + tanh) + 0.5f * x * (1.0f - tanh * tanh) * inner);
  };
  if (add)
    each_wide(
        count, in_gradient, [=](const Wide& x, const Wide& d, const Wide& old) { return old + part(x, d); },
        in, out_gradient, in_gradient);
  else
    each_wide(count, in_gradient, part, in, out_gradient);
}

void add(std::size_t count, const float* left, const float* right, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

void sum_rows(std::size_t rows, std::size_t width, const float* in, bool add, float* sum) {
  // Columns at a time that stay in the L1 cache.
  constexpr std::size_t kColumns = 512;
  for (std::size_t begin = 0; begin < width; begin += kColumns) {
    const std::size_t count = width - begin < kColumns ? width - begin : kColumns;
    float* const to = sum + begin;
    if (!add)
      for (std::size_t i = 0; i < count; ++i) to[i] = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const float* row = in + r * width + begin;
      for (std::size_t i = 0; i < count; ++i) to[i] += row[i];
    }
  }
}

void sum_each_row(std::size_t rows, std::size_t width, const float* in, bool add, float* sums) {
  for (std::size_t r = 0; r < rows; ++r)
    put(add, sum_of(width, [&](std::size_t i) { return in[r * width + i]; }), sums + r);
}

// The first place of a window whose value `tap` is not in front of `edge`.
inline int first_place(const Windows& w, int tap, int edge) {
  const int way = edge + w.padding - tap;
  const int place = way <= 0 ? 0 : (way + w.stride - 1) / w.stride;
  return place < w.columns ? place : w.columns;
}

// Calls each(from, first, end, column) for each row of places and each value of a window, in the order of
// columns: at places `first` to `end` the value lies inside the image, `from` + place * stride is its offset.
template <typename Each>
inline void each_run(const Windows& w, const Each& each) {
  std::size_t column = 0;
  for (int c = 0; c < w.channels; ++c)
    for (int ky = 0; ky < w.size; ++ky)
      for (int kx = 0; kx < w.size; ++kx) {
        const int first = first_place(w, kx, 0), end = first_place(w, kx, w.width);
        for (int y = 0; y < w.rows; ++y, column += w.columns) {
          const int row = y * w.stride + ky - w.padding;
          const bool inside = row >= 0 && row < w.height;
          each((static_cast<std::ptrdiff_t>(c) * w.height + row) * w.width + kx - w.padding, first,
               inside ? end : first, column);
        }
      }
}

void im2col(const Windows& w, const float* in, float* columns) {
  each_run(w, [&](std::ptrdiff_t from, int first, int end, std::size_t to) {
    float* const run = columns + to;
    for (int i = 0; i < first; ++i) run[i] = 0;
    if (w.stride == 1)
      for (int i = first; i < end; ++i) run[i] = in[from + i];
    else
      for (int i = first; i < end; ++i) run[i] = in[from + std::ptrdiff_t{i} * w.stride];
    for (int i = end; i < w.columns; ++i) run[i] = 0;
  });
}

void col2im(const Windows& w, const float* columns, float* in_gradient) {
  each_run(w, [&](std::ptrdiff_t to, int first, int end, std::size_t from) {
    const float* const run = columns + from;
    if (w.stride == 1)
      for (int i = first; i < end; ++i) in_gradient[to + i] += run[i];
    else
      for (int i = first; i < end; ++i) in_gradient[to + std::ptrdiff_t{i} * w.stride] += run[i];
  });
}

// The part of a window inside the image, and its first value's offset.
struct ClippedWindow {
  int height, width;
  std::size_t first;
};

// Calls each(part) in the order of the pool's outputs.
template <typename Each>
inline void each_window(const Windows& w, const Each& each) {
  for (int c = 0; c < w.channels; ++c)
    for (int y = 0; y < w.rows; ++y)
      for (int x = 0; x < w.columns; ++x) {
        const int up = y * w.stride - w.padding, left = x * w.stride - w.padding;
        const int top = up < 0 ? 0 : up, start = left < 0 ? 0 : left;
        const int bottom = up + w.size < w.height ? up + w.size : w.height;
        const int end = left + w.size < w.width ? left + w.size : w.width;
        each(ClippedWindow{bottom - top, end - start,
                           (static_cast<std::size_t>(c) * w.height + top) * w.width + start});
      }
}

void max_pool(const Windows& w, const float* in, float* out) {
  each_window(w, [&](const ClippedWindow& part) {
    float best = in[part.first];
    for (int ky = 0; ky < part.height; ++ky)
      for (int kx = 0; kx < part.width; ++kx) {
        const float value = in[part.first + ky * w.width + kx];
        best = best < value || value != value ? value : best;  // keeps NaN
      }
    *out++ = best;
  });
}

void max_pool_backward(const Windows& w, const float* in, const float* out, const float* out_gradient,
                       bool add, float* in_gradient) {
  if (!add) __builtin_memset(in_gradient, 0, sizeof(float) * w.channels * w.height * w.width);
  each_window(w, [&](const ClippedWindow& part) {
    const float best = *out++, left = *out_gradient++;
    for (int i = 0; i < part.height * part.width; ++i) {
      const std::size_t at = part.first + i / part.width * w.width + i % part.width;
      if (in[at] != best) continue;
      in_gradient[at] += left;
      break;
    }
  });
}

void layer_norm(std::size_t rows, std::size_t width, float epsilon, const float* in, const float* weight,
                const float* bias, float* moments, float* out) {
  const auto count = static_cast<float>(width);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const x = in + r * width;
    const float mean = sum_of(width, [&](std::size_t i) { return x[i]; }) / count;
    const float square = sum_of(width, [&](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
    const float scale = 1.0f / __builtin_sqrtf(square / count + epsilon);
    moments[2 * r] = mean, moments[2 * r + 1] = scale;
    float* const y = out + r * width;
    for (std::size_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  }
}

void layer_norm_backward(std::size_t rows, std::size_t width, const float* in, const float* weight,
                         const float* moments, const float* out_gradient, bool add, float* in_gradient,
                         bool add_parameters, float* weight_gradient, float* bias_gradient) {
  if (!add_parameters) {
    for (std::size_t i = 0; i < width; ++i) weight_gradient[i] = 0;
    for (std::size_t i = 0; i < width; ++i) bias_gradient[i] = 0;
  }
  const auto count = static_cast<float>(width);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const x = in + r * width;
    const float* const d = out_gradient + r * width;
    const float mean = moments[2 * r], scale = moments[2 * r + 1];
    for (std::size_t i = 0; i < width; ++i) {
      weight_gradient[i] += d[i] * ((x[i] - mean) * scale);
      bias_gradient[i] += d[i];
    }
    if (in_gradient == nullptr) continue;
    const float mean_d = sum_of(width, [&](std::size_t i) { return d[i] * weight[i]; }) / count;
    const float mean_dx =
        sum_of(width, [&](std::size_t i) { return d[i] * weight[i] * ((x[i] - mean) * scale); }) / count;
    float* const to = in_gradient + r * width;
    if (add) {
      for (std::size_t i = 0; i < width; ++i)
        to[i] += scale * (d[i] * weight[i] - mean_d - (x[i] - mean) * scale * mean_dx);
    } else {
      for (std::size_t i = 0; i < width; ++i)
        to[i] = scale * (d[i] * weight[i] - mean_d - (x[i] - mean) * scale * mean_dx);
    }
  }
}

// Scores become e^(score - largest).
inline void make_exponentials(std::size_t count, float largest, float* scores) {
  each_vector(count, [&](std::size_t i, std::size_t some) {
    store(exponential(load(scores + i, some) - largest), scores + i, some);
  });
}
// As well; returns their sum.
inline float exponentials(std::size_t count, float largest, float* scores) {
  make_exponentials(count, largest, scores);
  return sum_of(count, [&](std::size_t i) { return scores[i]; });
}

void causal_softmax(std::size_t rows, std::size_t first, std::size_t width, std::size_t stride,
                    float* scores) {
  constexpr std::size_t kRows = 4;  // at a time: the steps of one row wait for each other
  for (std::size_t begin = 0; begin < rows; begin += kRows) {
    const std::size_t last = begin + kRows < rows ? begin + kRows : rows;
    float largest[kRows], factors[kRows];
    const auto count_of = [=](std::size_t r) { return first + r + 1; };
    // Up to a whole vector: a loop's rest of single values takes longer. A copy is no larger one, and 0 adds
    // nothing to the sum.
    const auto end_of = [=](std::size_t r) {
      const std::size_t vectors = (count_of(r) + kSums - 1) / kSums * kSums;
      return vectors < width ? vectors : width;
    };
    for (std::size_t r = begin; r < last; ++r) {
      float* const row = scores + r * stride;
      for (std::size_t i = count_of(r); i < end_of(r); ++i) row[i] = row[0];
      largest[r - begin] = largest_of(end_of(r), row);
    }
    for (std::size_t r = begin; r < last; ++r)
      make_exponentials(end_of(r), largest[r - begin], scores + r * stride);
    for (std::size_t r = begin; r < last; ++r) {
      float* const row = scores + r * stride;
      for (std::size_t i = count_of(r); i < width; ++i) row[i] = 0;
      factors[r - begin] = 1.0f / sum_of(end_of(r), [=](std::size_t i) { return row[i]; });
    }
    for (std::size_t r = begin; r < last; ++r)
      for (std::size_t i = 0; i < count_of(r); ++i) scores[r * stride + i] *= factors[r - begin];
  }
}

void softmax_backward(std::size_t rows, std::size_t width, std::size_t stride, const float* softmax,
                      float scale, float* gradient) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const p = softmax + r * stride;
    float* const d = gradient + r * stride;
    const float mean = sum_of(width, [&](std::size_t i) { return p[i] * d[i]; });
    for (std::size_t i = 0; i < width; ++i) d[i] = p[i] * (d[i] - mean) * scale;
  }
}

float classify(std::size_t classes, std::int32_t target, float smoothing, bool gradient, float* logits,
               std::int32_t* largest_index) {
  const float largest = largest_of(classes, logits);
  std::int32_t index = 0;
  while (static_cast<std::size_t>(index) + 1 < classes && logits[index] != largest) ++index;
  *largest_index = index;
  const auto count = static_cast<float>(classes);
  float above = (1.0f - smoothing) * (logits[target] - largest);
  if (smoothing != 0)
    above += smoothing * (sum_of(classes, [&](std::size_t i) { return logits[i] - largest; }) / count);
  float sum;
  if (gradient) {
    sum = exponentials(classes, largest, logits);
    const float factor = 1.0f / sum;
    const float shared = smoothing / count;
    for (std::size_t i = 0; i < classes; ++i) logits[i] = logits[i] * factor - shared;
    logits[target] -= 1.0f - smoothing;
  } else {
    sum = sum_of(classes, [&](std::size_t i) { return exponential(logits[i] - largest); });
  }
  return logarithm(sum) - above;
}

// e^((logit - the largest) / temperature) of each; returns their sum.
[[gnu::noinline]] float soften(std::size_t classes, float temperature, float largest, const float* logits,
                               float* out) {
  for (std::size_t i = 0; i < classes; ++i) out[i] = (logits[i] - largest) / temperature;
  return exponentials(classes, 0.0f, out);
}

float distill(std::size_t classes, std::int32_t target, float smoothing, float temperature, float alpha,
              const float* teacher, float* scratch, float* logits, std::int32_t* largest_index) {
  float *const t = scratch, *const s = scratch + classes;
  const float largest_t = largest_of(classes, teacher), largest_s = largest_of(classes, logits);
  const float sum_t = soften(classes, temperature, largest_t, teacher, t),
              sum_s = soften(classes, temperature, largest_s, logits, s);
  const float apart = sum_of(
      classes, [&](std::size_t i) { return t[i] * ((teacher[i] - largest_t) - (logits[i] - largest_s)); });
  const float divergence = apart / (sum_t * temperature) + (logarithm(sum_s) - logarithm(sum_t));
  const float loss = classify(classes, target, smoothing, true, logits, largest_index);
  const float rest = 1.0f - alpha, share = alpha * temperature;
  const float factor_t = share / sum_t, factor_s = share / sum_s;
  for (std::size_t i = 0; i < classes; ++i)
    logits[i] = rest * logits[i] + (s[i] * factor_s - t[i] * factor_t);
  return rest * loss + share * temperature * divergence;
}

// Philox4x32-10, as in worker/core/philox.cc: here four numbers at a time, for many counters side by side.
inline void philox(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3, std::uint32_t k0,
                   std::uint32_t k1, std::uint32_t* out) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1), c3 = static_cast<std::uint32_t>(product0);
    c0 = n0, c2 = n2;
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

void dropout(std::size_t count, const DropoutStream& stream, float probability, const float* in, bool add,
             float* out) {
  const float factor = 1.0f / (1.0f - probability);
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    std::uint32_t bits[kAtOnce];
    for (std::size_t i = 0; i < kAtOnce / 4; ++i)
      philox(static_cast<std::uint32_t>(begin / 4 + i), stream.a, stream.b, stream.use, stream.key[0],
             stream.key[1], bits + 4 * i);
    const std::size_t size = count - begin < kAtOnce ? count - begin : kAtOnce;
    for (std::size_t i = 0; i < size; ++i) {
      const float uniform = static_cast<float>(bits[i] >> 8) * 0x1p-24f;
      const float kept = uniform >= probability ? factor : 0.0f;
      // Multiplied also where dropped, so that a value that is not finite stays so.
      put(add, in[begin + i] * kept, out + begin + i);
    }
  }
}

constexpr Kernels kKernels{
    .instruction_set = DTRUN_KERNELS_NAME,
    .to_bf16 = to_bf16,
    .relu = relu,
    .relu_backward = relu_backward,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .add = add,
    .sum_rows = sum_rows,
    .sum_each_row = sum_each_row,
    .im2col = im2col,
    .col2im = col2im,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .batch_moments = batch_moments,
    .batch_norm = batch_norm,
    .batch_norm_backward = batch_norm_backward,
    .batch_sums = batch_sums,
    .batch_gradient_sums = batch_gradient_sums,
    .batch_in_gradient = batch_in_gradient,
    .causal_softmax = causal_softmax,
    .softmax_backward = softmax_backward,
    .classify = classify,
    .distill = distill,
    .dropout = dropout,
};

}  // namespace
}  // namespace dtrun::worker::planned::DTRUN_KERNELS

namespace dtrun::worker {

template <>
const planned::Kernels Copies<planned::Kernels>::DTRUN_KERNELS = planned::DTRUN_KERNELS::kKernels;

}  // namespace dtrun::worker
