# What lies where Debian wants it otherwise than `cmake --install` does, before the package is closed.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
foreach(program dtrun dtrun-worker)
  file(RPATH_REMOVE FILE ${root}/bin/${program})  # libraries are where the loader looks anyway
endforeach()
file(GLOB pages ${root}/share/man/man*/*)
execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
file(MAKE_DIRECTORY ${root}/share/zsh/vendor-completions)  # site-functions is the administrator's
file(RENAME ${root}/share/zsh/site-functions/_dtrun ${root}/share/zsh/vendor-completions/_dtrun)
file(REMOVE_RECURSE ${root}/share/zsh/site-functions)
