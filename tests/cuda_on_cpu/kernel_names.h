// Names of functions of this program, also of those that no linker sees.
#pragma once

#include <string>

namespace cuda_on_cpu {

// Without namespaces and arguments: "tree_sum", "add<float>". The address in digits if the name is unknown.
std::string function_name(const void* function);

}  // namespace cuda_on_cpu
