#include "worker/device/cpu/onednn/matmul.h"

#include <dlfcn.h>

#include <dnnl.hpp>
#include <string>

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

}  // namespace dtrun::worker::onednn
