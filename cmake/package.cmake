# SPDX-License-Identifier: Apache-2.0
# What other projects find: find_package(tilescope COMPONENTS kernels profiler model), and pkg-config. Both from an
# installation, which may be moved; the build folder is one too, for find_package.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Installs a library and its headers as part of a component: common (of all), kernels, profiler or model.
set_property(GLOBAL PROPERTY TILESCOPE_LIBRARIES)
function(tilescope_export component target)
  string(REPLACE "tilescope_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT tilescope ARCHIVE DESTINATION lib COMPONENT development)
  foreach(header ${ARGN})
    file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${header})
    cmake_path(GET relative PARENT_PATH folder)
    install(FILES ${header} DESTINATION include/tilescope/${folder} COMPONENT development)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TILESCOPE_LIBRARIES_${component} ${target})
endfunction()

# A .pc file of a component. NEEDS: components that it links; SYSTEM: flags of the libraries that it is made of.
function(tilescope_pkg_config component description)
  cmake_parse_arguments(arg "" "" "NEEDS;SYSTEM" ${ARGN})
  get_property(libraries GLOBAL PROPERTY TILESCOPE_LIBRARIES_${component})
  list(REVERSE libraries)  # users before what they use
  list(TRANSFORM libraries PREPEND -l)
  list(JOIN libraries " " TILESCOPE_PC_LIBS)
  list(TRANSFORM arg_NEEDS PREPEND tilescope-)
  list(JOIN arg_NEEDS ", " TILESCOPE_PC_REQUIRES)
  list(JOIN arg_SYSTEM " " TILESCOPE_PC_LIBS_PRIVATE)
  set(TILESCOPE_PC_NAME tilescope-${component})
  set(TILESCOPE_PC_DESCRIPTION "${description}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/component.pc.in ${PROJECT_BINARY_DIR}/cmake/tilescope-${component}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/tilescope-${component}.pc DESTINATION lib/pkgconfig COMPONENT development)
endfunction()

# Called once all libraries are there.
function(tilescope_write_package)
  set_target_properties(tilescope_flags PROPERTIES EXPORT_NAME flags)
  install(TARGETS tilescope_flags EXPORT tilescope COMPONENT development)
  set(package_folder lib/cmake/tilescope)
  install(EXPORT tilescope NAMESPACE tilescope:: FILE tilescope-targets.cmake DESTINATION ${package_folder}
    COMPONENT development)
  set(build_folder ${PROJECT_BINARY_DIR}/cmake)
  export(EXPORT tilescope NAMESPACE tilescope:: FILE ${build_folder}/tilescope-targets.cmake)
  # Where bin/ and share/ lie: beside lib/ in an installation, in the build folder itself.
  set(TILESCOPE_DATA_STEPS "../../..")
  configure_file(cmake/tilescope-config.cmake.in ${build_folder}/install/tilescope-config.cmake @ONLY)
  set(TILESCOPE_DATA_STEPS "..")
  configure_file(cmake/tilescope-config.cmake.in ${build_folder}/tilescope-config.cmake @ONLY)
  write_basic_package_version_file(${build_folder}/tilescope-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${build_folder}/install/tilescope-config.cmake ${build_folder}/tilescope-config-version.cmake
    DESTINATION ${package_folder} COMPONENT development)
  set(cuda)
  if(TILESCOPE_HAS_CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(cuda -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl)
  endif()
  if(kernels IN_LIST TILESCOPE_COMPONENTS)
    tilescope_pkg_config(kernels "Attention kernels as tile programs, and the judge of their results"
      NEEDS common SYSTEM -lhwy ${OpenMP_CXX_FLAGS} ${cuda})
  endif()
  if(profiler IN_LIST TILESCOPE_COMPONENTS)
    tilescope_pkg_config(profiler "Hardware counters and times of any CUDA work" NEEDS common SYSTEM -ldl ${cuda})
  endif()
  if(model IN_LIST TILESCOPE_COMPONENTS)
    tilescope_pkg_config(model "Records, closed forms, the cache simulation and the report" NEEDS kernels profiler)
  endif()
  tilescope_pkg_config(common "What the other components of TileScope share" SYSTEM -lfmt -ldl)
endfunction()
