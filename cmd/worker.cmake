# dtrun-worker: the built-in trainer's program. No gRPC, no CLI. A test's program calls the same function.
add_library(dtrun_worker_main STATIC worker_main.cc)
target_link_libraries(dtrun_worker_main PRIVATE dtrun_worker_trainer dtrun_worker_export dtrun_worker_prepare dtrun_worker_sample dtrun_worker_profile dtrun_proto_base)
target_compile_definitions(dtrun_worker_main PRIVATE DTRUN_VERSION="${PROJECT_VERSION}")

add_executable(dtrun-worker dtrun_worker_main.cc)
target_link_libraries(dtrun-worker PRIVATE dtrun_options dtrun_worker_main dtrun_worker_gpu)
target_link_options(dtrun-worker PRIVATE -Wl,--gc-sections)
