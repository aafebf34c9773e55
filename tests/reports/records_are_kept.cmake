# SPDX-License-Identifier: Apache-2.0
# The committed records are what `record compact` makes of the raw ones, which are committed beside them as
# archives; and from the raw ones come the same report and the same generated parts of the texts, byte for byte.
# Usage: cmake -D PROGRAM=tilescope -D SOURCE=repository -D WORK=scratch -P records_are_kept.cmake
cmake_policy(SET CMP0057 NEW)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/full ${WORK}/compact)
file(STRINGS ${SOURCE}/reports/raw/SHA256SUMS sums)
file(GLOB_RECURSE archives RELATIVE ${SOURCE}/reports/raw ${SOURCE}/reports/raw/*.tar.xz)
list(LENGTH sums summed)
list(LENGTH archives kept)
if(NOT summed EQUAL kept OR kept EQUAL 0)
  message(FATAL_ERROR "SHA256SUMS has ${summed} lines for ${kept} archives")
endif()
foreach(line ${sums})
  string(REGEX MATCH "^([0-9a-f]+)  (.*)$" line "${line}")
  set(sum ${CMAKE_MATCH_1})
  set(archive ${CMAKE_MATCH_2})
  file(SHA256 ${SOURCE}/reports/raw/${archive} found)
  if(NOT found STREQUAL sum)
    message(FATAL_ERROR "${archive} is not what SHA256SUMS says")
  endif()
  get_filename_component(folder ${archive} DIRECTORY)
  foreach(form full compact)
    file(ARCHIVE_EXTRACT INPUT ${SOURCE}/reports/raw/${archive} DESTINATION ${WORK}/${form}/reports/${folder})
  endforeach()
endforeach()

# The one figure that is drawn from samples alone.
execute_process(COMMAND ${PROGRAM} profile --timeline ${WORK}/timeline.svg --quiet
    --samples ${WORK}/full/reports/profiler/h200-timeline.json
  RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "profile --samples failed: ${complaint}")
endif()
file(SHA256 ${SOURCE}/reports/profiler/h200-timeline.svg committed)
file(SHA256 ${WORK}/timeline.svg made)
if(NOT committed STREQUAL made)
  message(FATAL_ERROR "reports/profiler/h200-timeline.svg is out of date: profile --timeline FILE --samples draws it")
endif()

file(GLOB_RECURSE records RELATIVE ${WORK}/compact ${WORK}/compact/*.json)
execute_process(COMMAND ${PROGRAM} record compact ${records} --quiet WORKING_DIRECTORY ${WORK}/compact
  RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "record compact failed: ${complaint}")
endif()
set(compact_ones)
foreach(record ${records})
  if(NOT EXISTS ${SOURCE}/${record})
    continue()  # kept as an archive alone
  endif()
  file(SHA256 ${SOURCE}/${record} committed)
  file(SHA256 ${WORK}/compact/${record} made)
  if(NOT committed STREQUAL made)
    message(FATAL_ERROR "${record} is not what `record compact` makes of its archive")
  endif()
  list(APPEND compact_ones ${record})
endforeach()

file(GLOB_RECURSE committed_ones RELATIVE ${SOURCE} ${SOURCE}/reports/data/*.json)
foreach(record ${committed_ones})
  if(NOT record IN_LIST compact_ones)
    message(FATAL_ERROR "${record} has no archive in reports/raw")
  endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} -D PROGRAM=${PROGRAM} -D SOURCE=${SOURCE} -D RECORDS=${WORK}/full
    -D WORK=${WORK}/pages -P ${CMAKE_CURRENT_LIST_DIR}/reports_are_current.cmake
  RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "the raw records give another report: ${complaint}")
endif()
