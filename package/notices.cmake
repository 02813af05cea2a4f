# The copyright notices of what others wrote and an archive carries, from Debian's packages of it, into
# share/doc/dtrun/notices. Run by `cmake --install --component libraries`; elsewhere than on Debian there are no such files, and
# nothing is brought. `sbom`: the bill of materials (sbom.cmake).
set(prefix $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX})
file(READ "${sbom}" bill)
string(JSON count LENGTH "${bill}" components)
foreach(index RANGE ${count})
  if(index EQUAL count)
    break()
  endif()
  string(JSON package GET "${bill}" components ${index} name)
  # Boost's licence asks for none beside object code, and Debian's file of it, 2 MB, names the authors of every document.
  if(package MATCHES "^libboost")
    continue()
  endif()
  set(notice /usr/share/doc/${package}/copyright)
  if(EXISTS ${notice})
    file(REAL_PATH ${notice} notice)
    file(INSTALL ${notice} DESTINATION ${prefix}/share/doc/dtrun/notices RENAME ${package})
  endif()
endforeach()
