# What of others is in the programs: a bill of materials (CycloneDX, JSON) from what the linker read and the loader takes, with
# the packages of Debian that brought it as dpkg tells them. Elsewhere than on Debian nothing is known, and the list is empty.
#
#   cmake -D OUTPUT=sbom.cdx.json -D VERSION=1.2.3 -D LINKED="FILE;…" -D PROGRAMS="FILE;…" -P sbom.cmake
#
# LINKED: of each program, what `ld --dependency-file` wrote.
set(files_static)  # archives, and the start and end of every program
set(files_shared)
foreach(linked ${LINKED})
  file(READ ${linked} rule)
  string(REGEX MATCHALL " /[^ \n]+\\.[ao]" files "${rule}")  # dtrun's own have no / in front
  list(APPEND files_static ${files})
endforeach()
foreach(program ${PROGRAMS})
  execute_process(COMMAND ldd ${program} OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " /[^ \n]+\\.so[^ \n]*" files "${said}")
  list(APPEND files_shared ${files})
endforeach()
# All in headers: neither linker nor loader sees them.
set(packages_headers libcli11-dev libspdlog-dev nlohmann-json3-dev)
set(packages_embedded libjs-dygraphs)  # as text, proto/web

find_program(dpkg_query dpkg-query)
# packages_of(VARIABLE FILE…): those that brought the files. dpkg knows some by a name in /lib, some by one in /usr/lib.
function(packages_of variable)
  set(names)
  foreach(file ${ARGN})
    string(STRIP ${file} file)
    get_filename_component(plain ${file} ABSOLUTE)
    file(REAL_PATH ${file} real)
    string(REGEX REPLACE "^/usr" "" short ${real})
    list(APPEND names ${plain} ${real} ${short})
  endforeach()
  list(REMOVE_DUPLICATES names)
  execute_process(COMMAND ${dpkg_query} --search ${names} OUTPUT_VARIABLE owners ERROR_QUIET)
  string(REGEX MATCHALL "[^\n]+" owners "${owners}")
  list(FILTER owners EXCLUDE REGEX "^diversion ")
  list(TRANSFORM owners REPLACE ":.*" "")
  list(REMOVE_DUPLICATES owners)
  list(SORT owners)
  set(${variable} ${owners} PARENT_SCOPE)
endfunction()
if(dpkg_query)
  packages_of(packages_static ${files_static})
  packages_of(packages_shared ${files_shared})
  packages_of(package_boost /usr/include/boost/version.hpp)  # named by its version
  list(APPEND packages_headers ${package_boost})
else()
  set(packages_headers)
  set(packages_embedded)
endif()

set(system debian)
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release lines REGEX "^ID=")
  string(REGEX REPLACE "^ID=\"?([a-z]+).*" "\\1" system "${lines}")
endif()
set(components)
foreach(linkage headers embedded static shared)
  set(said)
  if(packages_${linkage})
    set(fields [[${Package} ${Version} ${Architecture} ${source:Package}\n]])
    execute_process(COMMAND ${dpkg_query} --show --showformat ${fields} ${packages_${linkage}} OUTPUT_VARIABLE said
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${said}")
  foreach(line ${lines})
    string(REGEX MATCH "^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)$" line "${line}")
    string(REPLACE "+" "%2B" purl "${CMAKE_MATCH_1}@${CMAKE_MATCH_2}")
    string(REPLACE ":" "%3A" purl ${purl})
    string(CONCAT component "{\"type\": \"library\", \"name\": \"${CMAKE_MATCH_1}\", \"version\": \"${CMAKE_MATCH_2}\", "
      "\"purl\": \"pkg:deb/${system}/${purl}?arch=${CMAKE_MATCH_3}&upstream=${CMAKE_MATCH_4}\", "
      "\"properties\": [{\"name\": \"dtrun:source\", \"value\": \"${CMAKE_MATCH_4}\"}, "
      "{\"name\": \"dtrun:linkage\", \"value\": \"${linkage}\"}]}")
    list(APPEND components "    ${component}")
  endforeach()
endforeach()
list(JOIN components ",\n" components)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[{
  "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
  "metadata": {"component": {"type": "application", "name": "dtrun", "version": "@VERSION@"}},
  "components": [
@components@
  ]
}
]] @ONLY)
