# dtrun-worker: the built-in trainer's program. No gRPC, no CLI.
add_executable(dtrun-worker worker_main.cc)
target_link_libraries(dtrun-worker PRIVATE dtrun_worker_trainer dtrun_proto_base)
target_compile_definitions(dtrun-worker PRIVATE DTRUN_VERSION="${PROJECT_VERSION}")
