# The copyright notices of what others wrote and an archive carries, from Debian's packages of it, into
# share/doc/dtrun/notices. Run by `cmake --install --component libraries`, behind the libraries; elsewhere than on Debian
# there are no such files, and nothing is brought.
find_program(dpkg_query dpkg-query)
if(NOT dpkg_query)
  return()
endif()
set(prefix $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX})
# Linked as archives, or all in headers.
set(packages libabsl-dev libc-ares-dev libcli11-dev libgrpc-dev libpcre2-dev libprotobuf-dev libre2-dev libspdlog-dev
  nlohmann-json3-dev)
foreach(library ${CMAKE_INSTALL_MANIFEST_FILES})
  get_filename_component(library ${library} NAME)
  execute_process(COMMAND ${dpkg_query} --search */${library} OUTPUT_VARIABLE owners ERROR_QUIET)
  string(REGEX MATCHALL "[^\n]+" owners "${owners}")
  foreach(owner ${owners})
    string(REGEX REPLACE ":.*" "" owner "${owner}")
    list(APPEND packages ${owner})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES packages)
foreach(package ${packages})
  set(notice /usr/share/doc/${package}/copyright)
  if(EXISTS ${notice})
    file(REAL_PATH ${notice} notice)
    file(INSTALL ${notice} DESTINATION ${prefix}/share/doc/dtrun/notices RENAME ${package})
  endif()
endforeach()
