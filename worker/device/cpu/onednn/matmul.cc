#include "worker/device/cpu/onednn/matmul.h"

#include <dlfcn.h>

#include <dnnl.hpp>
#include <string>

#include "worker/base/error.h"

namespace dtrun::worker::onednn {

// The OpenMP runtime is the one that oneDNN was linked with; without one there is nothing to set.
void use_one_thread() {
  if (void* function = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
    reinterpret_cast<void (*)(int)>(function)(1);
}

std::string version() {
  const dnnl_version_t* const v = dnnl::version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch);
}

void multiply(const Matmul<float>& p) {
  if (p.m == 0 || p.n == 0) return;
  const dnnl::status status =
      dnnl::sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a,
                  p.a_stride, p.b, p.b_stride, p.beta, p.c, p.c_stride);
  if (status != dnnl::status::success)
    throw WorkerError(kExitSoftware, "oneDNN cannot multiply matrices of " + std::to_string(p.m) + "x" +
                                         std::to_string(p.k) + " and " + std::to_string(p.k) + "x" +
                                         std::to_string(p.n));
}

}  // namespace dtrun::worker::onednn
