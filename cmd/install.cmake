# What `cmake --install` brings: the programs, and the man pages, completions and the config's schema that dtrun itself prints. The component
# `libraries`, which is brought by name alone, is the shared libraries that not every distribution has: with them the
# folder runs anywhere. package/ makes packages of it.
include(GNUInstallDirs)

set(printed_files)
# dtrun_prints(dtrun.1 help --format man): the file in the build folder that this command line prints.
function(dtrun_prints name)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/manual/${name} DEPENDS dtrun
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/manual
    COMMAND dtrun ${ARGN} > ${CMAKE_BINARY_DIR}/manual/${name})
  set(printed_files ${printed_files} ${CMAKE_BINARY_DIR}/manual/${name} PARENT_SCOPE)
endfunction()

dtrun_prints(dtrun.1 help --format man)
dtrun_prints(dtrun-config.5 help --format man config)
dtrun_prints(job.schema.json help --format schema config)
dtrun_prints(dtrun.bash completion bash)
dtrun_prints(_dtrun completion zsh)
dtrun_prints(dtrun.fish completion fish)
add_custom_target(dtrun_manual ALL DEPENDS ${printed_files})

# What the linker read for each program is a list beside it, of which package/sbom.cmake makes the bill of materials. CMake
# from 3.27 on asks the linker for such a list of its own, with an option that comes after this one and wins.
set(CMAKE_LINK_DEPENDS_USE_LINKER FALSE)
set(programs)
set(linked)
foreach(target dtrun dtrun-worker)
  target_link_options(${target} PRIVATE -Wl,--dependency-file=$<TARGET_FILE:${target}>.linked)
  list(APPEND programs $<TARGET_FILE:${target}>)
  list(APPEND linked $<TARGET_FILE:${target}>.linked)
endforeach()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/sbom.cdx.json DEPENDS dtrun dtrun-worker ${CMAKE_SOURCE_DIR}/package/sbom.cmake
  COMMAND ${CMAKE_COMMAND} -D OUTPUT=${CMAKE_BINARY_DIR}/sbom.cdx.json -D VERSION=${PROJECT_VERSION}
    -D "LINKED=${linked}" -D "PROGRAMS=${programs}" -P ${CMAKE_SOURCE_DIR}/package/sbom.cmake VERBATIM)
add_custom_target(dtrun_sbom ALL DEPENDS ${CMAKE_BINARY_DIR}/sbom.cdx.json)
# All that `cmake --install` takes.
add_custom_target(dtrun_installed DEPENDS dtrun dtrun-worker dtrun_manual dtrun_sbom)

# dtrun_runs_elsewhere(dtrun): looks for libraries in lib/dtrun/ beside its own folder, before anywhere else: in that of an
# environment's Python, lib/ would be other programs', too. As DT_RPATH, since the younger DT_RUNPATH would not hold for the
# libraries' own libraries, and LD_LIBRARY_PATH would come first: it often names another program's. The second path is the same
# folder within a wheel, before pip unpacks it, where auditwheel looks. In a build there is none of both; it has the paths so that
# installing changes no bytes of a program.
function(dtrun_runs_elsewhere)
  foreach(target ${ARGN})
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
      INSTALL_RPATH "$ORIGIN/../lib/dtrun:$ORIGIN/../data/lib/dtrun")
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()
dtrun_runs_elsewhere(dtrun dtrun-worker)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
set(printed ${CMAKE_BINARY_DIR}/manual)
install(TARGETS dtrun dtrun-worker RUNTIME_DEPENDENCY_SET shared_libraries RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${printed}/dtrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${printed}/dtrun-config.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${printed}/dtrun.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME dtrun)
install(FILES ${printed}/_dtrun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${printed}/dtrun.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_BINARY_DIR}/sbom.cdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/dtrun PATTERN job.schema.json EXCLUDE)
install(FILES ${printed}/job.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/dtrun/configs)

# Without those that every distribution has, and whose newer versions serve older programs.
install(RUNTIME_DEPENDENCY_SET shared_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|pthread|rt|resolv|stdc\\+\\+|gcc_s)\\.so"
  LIBRARY DESTINATION lib/dtrun COMPONENT libraries EXCLUDE_FROM_ALL)
install(CODE "set(sbom \"${CMAKE_BINARY_DIR}/sbom.cdx.json\")" COMPONENT libraries EXCLUDE_FROM_ALL)
install(SCRIPT ${CMAKE_SOURCE_DIR}/package/notices.cmake COMPONENT libraries EXCLUDE_FROM_ALL)
