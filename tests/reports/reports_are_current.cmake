# SPDX-License-Identifier: Apache-2.0
# Makes reports/ and the generated parts of the texts again from the committed records, and compares byte for
# byte.
# Usage: cmake -D PROGRAM=tilescope -D SOURCE=repository -D WORK=scratch -P reports_are_current.cmake
# With -D RECORDS=folder from the records of another reports/data.
if(NOT RECORDS)
  set(RECORDS ${SOURCE})
endif()
file(GLOB records RELATIVE ${RECORDS} ${RECORDS}/reports/data/*.json)
if(NOT records)
  message(FATAL_ERROR "no records in reports/data")
endif()
file(GLOB holdout RELATIVE ${RECORDS} ${RECORDS}/reports/data/holdout-*/*.json)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/reports)
set(texts)
set(fill)
foreach(text README.md reports/README.md reports/io_complexity.md)
  if(NOT EXISTS ${SOURCE}/${text})
    continue()
  endif()
  list(APPEND texts ${text})
  configure_file(${SOURCE}/${text} ${WORK}/${text} COPYONLY)
  list(APPEND fill --fill ${WORK}/${text})
endforeach()
execute_process(COMMAND ${PROGRAM} report ${records} --holdout ${holdout} --out ${WORK}/reports ${fill} --quiet
  WORKING_DIRECTORY ${RECORDS} RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "tilescope report failed: ${complaint}")
endif()

file(GLOB committed_figures RELATIVE ${SOURCE} ${SOURCE}/reports/figures/*.svg)
file(GLOB made_figures RELATIVE ${WORK} ${WORK}/reports/figures/*.svg)
if(NOT "${committed_figures}" STREQUAL "${made_figures}")
  message(FATAL_ERROR "reports/figures holds other files than the records give:\n${committed_figures}\n${made_figures}")
endif()

set(stale)
foreach(file ${texts} reports/report.md reports/report.html ${committed_figures})
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${SOURCE}/${file} ${WORK}/${file}
    RESULT_VARIABLE differs ERROR_QUIET)
  if(differs)
    string(APPEND stale " ${file}")
  endif()
endforeach()
if(stale)
  message(FATAL_ERROR "out of date:${stale}\nRun: ./tilescope report reports/data/*.json --holdout reports/data/holdout-*/*.json --out reports --fill README.md --fill reports/README.md --fill reports/io_complexity.md")
endif()
