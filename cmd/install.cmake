# What `cmake --install` brings: the programs, and the man pages and completions that dtrun itself prints.
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
dtrun_prints(dtrun.bash completion bash)
dtrun_prints(_dtrun completion zsh)
dtrun_prints(dtrun.fish completion fish)
add_custom_target(dtrun_manual ALL DEPENDS ${printed_files})

set(printed ${CMAKE_BINARY_DIR}/manual)
install(TARGETS dtrun dtrun-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${printed}/dtrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${printed}/dtrun-config.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${printed}/dtrun.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME dtrun)
install(FILES ${printed}/_dtrun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${printed}/dtrun.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DOCDIR})
