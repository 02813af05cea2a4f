# A package is for others' machines too.
if(CPACK_DTRUN_GPUS STREQUAL HERE)
  message(FATAL_ERROR "this build is for this machine's GPUs alone, as scripts/demo made it; "
    "for a package: cmake --preset release && cmake --build --preset release")
endif()
