# Read by cpack once for each kind of package.
include(${CMAKE_CURRENT_LIST_DIR}/all_gpus.cmake)
if(CPACK_GENERATOR STREQUAL DEB)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  list(PREPEND CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_ways.cmake)
endif()
