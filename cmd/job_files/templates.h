// The files of configs/cluster that this program was built with.
#pragma once

#include <string_view>

namespace dtrun::cmd {

extern const std::string_view kKubernetesTemplate, kSlurmTemplate;

}  // namespace dtrun::cmd
