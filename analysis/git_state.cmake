# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, which tells the program the commit it was built from, and touches it only when that changed.
# A source tree that is not itself a git checkout is "unknown", even inside somebody else's checkout.
set(sha "unknown")
set(dirty "std::nullopt")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --show-toplevel HEAD WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" answer "${answer}")
  if(NOT failed)
    list(GET answer 0 top)
    file(REAL_PATH "${SOURCE_DIR}" source)
    if(top STREQUAL source)
      list(GET answer 1 sha)
      execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE_DIR}
        OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes STREQUAL "")
        set(dirty "false")
      else()
        set(dirty "true")
      endif()
    endif()
  endif()
endif()
set(model "")
file(GLOB_RECURSE sources RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/analysis/model/*.?pp ${SOURCE_DIR}/cpu_ref/schedule/*.?pp)
list(SORT sources)
foreach(file ${sources})
  file(SHA256 ${SOURCE_DIR}/${file} hash)
  string(APPEND model "${file} ${hash}\n")
endforeach()
string(SHA256 model "${model}")
set(content "// Generated at build time.
#include \"analysis/records/git_state.hpp\"
namespace tilescope {
GitState built_from() { return {\"${sha}\", ${dirty}}; }
std::string model_sha256() { return \"${model}\"; }
}  // namespace tilescope
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
