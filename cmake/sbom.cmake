# SPDX-License-Identifier: Apache-2.0
# What of others is part of an installation or a wheel: a bill of materials in CycloneDX's JSON. Called once all
# packages are found.
function(tilescope_write_sbom)
  set(components)
  foreach(row "fmt;fmt;MIT" "nlohmann_json;nlohmann-json;MIT" "CLI11;CLI11;BSD-3-Clause" "spdlog;spdlog;MIT" "HWY;highway;Apache-2.0" "ZLIB;zlib;Zlib"
              "CUDAToolkit;cuda-runtime;LicenseRef-NVIDIA-CUDA-EULA")
    list(GET row 0 package)
    list(GET row 1 name)
    list(GET row 2 licence)
    if(NOT ${package}_VERSION OR (package STREQUAL "CUDAToolkit" AND NOT TILESCOPE_HAS_CUDA))
      continue()
    endif()
    set(term "\"license\": {\"id\": \"${licence}\"}")
    if(licence MATCHES "^LicenseRef")
      set(term "\"license\": {\"name\": \"${licence}\"}")
    endif()
    list(APPEND components
      "    {\"type\": \"library\", \"name\": \"${name}\", \"version\": \"${${package}_VERSION}\", \"licenses\": [{${term}}]}")
  endforeach()
  list(JOIN components ",\n" components)
  set(file ${PROJECT_BINARY_DIR}/cmake/tilescope.cdx.json)
  file(CONFIGURE OUTPUT ${file} CONTENT [[{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {"type": "application", "name": "tilescope", "version": "@PROJECT_VERSION@", "licenses": [{"license": {"id": "Apache-2.0"}}]}
  },
  "components": [
@components@
  ]
}
]] @ONLY)
  if(SKBUILD_METADATA_DIR)  # of a wheel, by PEP 770
    install(FILES ${file} DESTINATION ${SKBUILD_METADATA_DIR}/sboms COMPONENT python)
  else()
    install(FILES ${file} DESTINATION share/tilescope COMPONENT runtime)
    install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/tilescope COMPONENT runtime)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/licences DESTINATION share/doc/tilescope COMPONENT runtime)
  endif()
endfunction()
