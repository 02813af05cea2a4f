# The component `tests` of `cmake --install`, which is brought by name alone: what a machine with a GPU runs and need not
# build. Lies in its folder as here, so that scripts/bench_gpu finds it.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME tests)
foreach(program gpu_device_tests worker_device_cuda_cudnn_on_gpu_tests stop_point_worker)
  if(TARGET ${program})
    dtrun_runs_elsewhere(${program})
    # Its messages name a file from the source folder on; elsewhere that folder means nothing.
    foreach(part ${program} ${program}_optimized)
      if(TARGET ${part})
        target_compile_options(${part} PRIVATE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=./)
      endif()
    endforeach()
    install(TARGETS ${program} RUNTIME DESTINATION tests OPTIONAL EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/bench_gpu DESTINATION scripts EXCLUDE_FROM_ALL)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/scripts/ DESTINATION scripts EXCLUDE_FROM_ALL
  FILES_MATCHING REGEX "/bench_(gpu_.*|common|processes|torch_models)\\.py$" PATTERN __pycache__ EXCLUDE)
