# SPDX-License-Identifier: Apache-2.0
# Makes reports/ and the generated parts of the texts again from the committed records, and compares byte for
# byte.
# Usage: cmake -D PROGRAM=tilescope -D SOURCE=repository -D WORK=scratch -P reports_are_current.cmake
file(GLOB records RELATIVE ${SOURCE} ${SOURCE}/reports/data/*.json.gz)
if(NOT records)
  message(FATAL_ERROR "no records in reports/data")
endif()
file(GLOB claims RELATIVE ${SOURCE} ${SOURCE}/reports/data/claims/*.json.gz)
file(GLOB holdout RELATIVE ${SOURCE} ${SOURCE}/reports/data/holdout-*/*.json.gz)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/reports)
set(texts)
set(fill)
foreach(text README.md reports/io_complexity.md reports/findings.md reports/glossary.md)
  if(NOT EXISTS ${SOURCE}/${text})
    continue()
  endif()
  list(APPEND texts ${text})
  configure_file(${SOURCE}/${text} ${WORK}/${text} COPYONLY)
  list(APPEND fill --fill ${WORK}/${text})
endforeach()
execute_process(COMMAND ${PROGRAM} report ${records} --holdout ${holdout} --claims ${claims} --out ${WORK}/reports ${fill} --quiet
  WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "tilescope report failed: ${complaint}")
endif()

# A page of few sections, whose long tables stand open, for those that look at pages.
execute_process(COMMAND ${PROGRAM} report reports/data/explain-mha.json.gz --out ${WORK}/small --quiet
  WORKING_DIRECTORY ${SOURCE} COMMAND_ERROR_IS_FATAL ANY)

file(GLOB committed_figures RELATIVE ${SOURCE} ${SOURCE}/reports/figures/*.svg)
file(GLOB made_figures RELATIVE ${WORK} ${WORK}/reports/figures/*.svg)
if(NOT "${committed_figures}" STREQUAL "${made_figures}")
  message(FATAL_ERROR "reports/figures holds other files than the records give:\n${committed_figures}\n${made_figures}")
endif()

set(stale)
foreach(file ${texts} reports/report.md ${committed_figures})
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${SOURCE}/${file} ${WORK}/${file}
    RESULT_VARIABLE differs ERROR_QUIET)
  if(differs)
    string(APPEND stale " ${file}")
  endif()
endforeach()
if(stale)
  message(FATAL_ERROR "out of date:${stale}\nRun: ./tilescope report reports/data/*.json.gz --holdout reports/data/holdout-*/*.json.gz --claims reports/data/claims/*.json.gz --out reports --fill README.md --fill reports/io_complexity.md --fill reports/findings.md --fill reports/glossary.md")
endif()

# What the hand-written pages cite stands in the report.
file(READ ${SOURCE}/reports/report.md report)
foreach(text README.md reports/README.md reports/io_complexity.md reports/findings.md)
  file(READ ${SOURCE}/${text} words)
  string(REGEX MATCHALL "report\\.md#[a-z0-9-]+" citations "${words}")
  foreach(citation ${citations})
    string(REPLACE "report.md#" "" section ${citation})
    string(FIND "${report}" "<a id=\"${section}\">" place)
    if(place EQUAL -1)
      message(FATAL_ERROR "${text} cites ${citation}, which the report does not have")
    endif()
  endforeach()
endforeach()

# The one figure that is drawn from samples alone.
execute_process(COMMAND ${PROGRAM} profile --timeline ${WORK}/timeline.svg --quiet
    --samples ${SOURCE}/reports/profiler/h200-timeline.json.gz
  RESULT_VARIABLE failed ERROR_VARIABLE complaint)
if(failed)
  message(FATAL_ERROR "profile --samples failed: ${complaint}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${SOURCE}/reports/profiler/h200-timeline.svg
  ${WORK}/timeline.svg RESULT_VARIABLE differs ERROR_QUIET)
if(differs)
  message(FATAL_ERROR "reports/profiler/h200-timeline.svg is out of date: profile --timeline FILE --samples draws it")
endif()
