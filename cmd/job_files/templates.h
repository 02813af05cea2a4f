// The files of configs/cluster that this program was built with.
#pragma once

namespace dtrun::cmd {

extern const char* const kKubernetesTemplate;
extern const char* const kSlurmTemplate;

}  // namespace dtrun::cmd
